package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// podman runs releases as containers, in the network of the host.
type podman struct{ *site }

// stopTime is how long a release may take to end, in seconds: more than the setting drain.
const stopTime = "30"

func (p *podman) container(r *release) string {
	return fmt.Sprintf("millrace-%s-r%d", p.o.Name, r.Number)
}

func (p *podman) image(r *release) string {
	return fmt.Sprintf("localhost/%s-r%d:latest", p.layout(), r.Number)
}

func (p *podman) secret(r *release, name string) string { return p.container(r) + "-" + name }

func (p *podman) volume() string { return p.layout() }

func (p *podman) podman(args ...string) (string, error) {
	return p.run(`exec podman "$@"`, args...)
}

// check implements runner.
func (p *podman) check() error {
	if p.uid != "0" && p.systemd {
		// Without it, the containers end with the last session of the user.
		if _, err := p.run(`loginctl enable-linger`); err != nil {
			p.notes = append(p.notes, "containers of this user end with the last session, and do not start with the "+
				"host: loginctl enable-linger")
		}
	}
	if len(p.state.Releases) > 0 {
		return nil // as at the first deploy
	}
	text, err := p.run(`command -v podman >/dev/null || exit 3
podman --version`)
	var exit *exitError
	if errors.As(err, &exit) && exit.status == 3 {
		return fmt.Errorf("%s: Podman is not there: install it (apt-get install podman), or use --with %s", p.name,
			Systemd)
	}
	if err != nil {
		return err
	}
	words := strings.Fields(text)
	if n, err := strconv.Atoi(strings.SplitN(words[len(words)-1], ".", 2)[0]); err == nil && n < 4 {
		return fmt.Errorf("%s: %s is too old: want 4.0 or newer", p.name, text)
	}
	return p.foreign(`podman ps --all --format '{{.Names}}'`, "")
}

// install implements runner.
func (p *podman) install(ctx context.Context, r *release, secrets []Secret) error {
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{{MediaType: types.OCIManifestSchema1, Size: r.Size,
			Digest:      v1.Hash{Algorithm: "sha256", Hex: hexOf(r.Image)},
			Annotations: map[string]string{"org.opencontainers.image.ref.name": fmt.Sprintf("r%d", r.Number)}}}})
	if err != nil {
		return err
	}
	// Podman takes the layers that it has already from its own storage, and names the image by the folder: a link has
	// the name of the release.
	if _, err := p.runFor(ctx, unpackTime, `umask 022
cd "$1"
printf '%s\n' "$4" >"$2/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' >"$2/oci-layout"
ln -sfn "$2" "$2-$3"
got=0
podman pull --quiet "oci:$2-$3:$3" || got=$?
rm -f "$2-$3"
exit $got`, p.folder, p.layout(), fmt.Sprintf("r%d", r.Number), string(index)); err != nil {
		return err
	}
	if err := p.giveSecrets(ctx, r, secrets); err != nil {
		return err
	}
	_, err = p.podman(p.create(r)...)
	return err
}

// giveSecrets makes Podman's secrets of a release.
func (p *podman) giveSecrets(ctx context.Context, r *release, secrets []Secret) error {
	if len(secrets) == 0 {
		return nil
	}
	var pairs []string
	for _, s := range secrets {
		pairs = append(pairs, p.secret(r, s.Name), string(s.Value))
	}
	_, err := p.run(`while [ $# -gt 0 ]; do
	printf %s "$2" | podman secret create "$1" - >/dev/null
	shift 2
done`, pairs...)
	return err
}

// create returns the arguments of podman that make the container.
func (p *podman) create(r *release) []string {
	args := []string{"create", "--pull", "never", "--name", p.container(r), "--network", "host", "--read-only",
		"--tmpfs", "/tmp", "--image-volume", "ignore", "--cap-drop", "all", "--security-opt", "no-new-privileges",
		"--restart", "on-failure",
		"--stop-timeout", stopTime, "--volume", p.volume() + ":/var/lib/millrace",
		"--label", "millrace.application=" + p.o.Name,
		"--env", "MILLRACE_HANDOVER=unix:/var/lib/millrace/handover.sock", "--env", "MILLRACE_ADDR=" + r.Health}
	for _, name := range r.Secrets {
		args = append(args, "--secret", p.secret(r, name)+",type=env,target="+name)
	}
	args = append(args, r.Podman...)
	return append(append(args, p.image(r)), r.Arguments...)
}

// start implements runner.
func (p *podman) start(r *release) error {
	_, err := p.podman("start", p.container(r))
	return err
}

// status implements runner.
func (p *podman) status(of ...*release) ([]status, error) {
	var names []string
	for _, r := range of {
		names = append(names, p.container(r))
	}
	// A command of podman takes a twentieth of a second, or ten times as long on a busy host.
	text, err := p.run(`see() {
	podman inspect --type container --format '{{.Name}} {{.State.Status}} {{.State.ExitCode}} {{.RestartCount}}' "$@"
}
if see "$@" 2>/dev/null; then exit 0; fi
for c in "$@"; do
	there=0
	podman container exists "$c" || there=$?
	case $there in
	0) see "$c" ;;
	1) echo "$c none 0 0" ;;
	*) exit "$there" ;;
	esac
done`, names...)
	if err != nil {
		return nil, err
	}
	found := map[string]status{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 4 {
			return nil, fmt.Errorf("%s: podman inspect prints %q", p.name, line)
		}
		found[words[0]] = status{running: words[1] == "running", restarts: words[3] != "0",
			text: fmt.Sprintf("%s, exit status %s, %s restarts", words[1], words[2], words[3])}
	}
	var all []status
	for _, name := range names {
		all = append(all, found[name])
	}
	return all, nil
}

// healthy implements runner.
func (p *podman) healthy(r *release) error {
	_, err := p.podman("exec", p.container(r), "/usr/local/bin/millrace", "health")
	return err
}

// stop implements runner.
func (p *podman) stop(r *release) error {
	_, err := p.run(`podman container exists "$1" || exit 0
podman stop --time "$2" "$1"`, p.container(r), stopTime)
	return err
}

// remove implements runner.
func (p *podman) remove(r *release) error {
	args := []string{p.container(r), p.image(r)}
	for _, name := range r.Secrets {
		args = append(args, p.secret(r, name))
	}
	_, err := p.run(`c=$1
i=$2
shift 2
podman rm --force --ignore --time `+stopTime+` "$c" >/dev/null
if ! podman rmi "$i" >/dev/null 2>&1 && podman image exists "$i"; then podman rmi "$i" >/dev/null; fi
if [ $# -gt 0 ]; then podman secret rm "$@" >/dev/null 2>&1 || :; fi`, args...)
	return err
}

// boot implements runner: a unit starts the container with the host. Without systemd, a file names the container for
// a program of the host, which the user sets up once.
func (p *podman) boot(r, before *release) error {
	if !p.systemd {
		file := p.folder + "/container"
		if err := p.put(file, []byte(p.container(r)+"\n")); err != nil || before != nil {
			return err
		}
		return fmt.Errorf(`systemd does not run there: let the host run podman start "$(cat %s)"`, quote(file))
	}
	path, err := p.run(`command -v podman`)
	if err != nil {
		return err
	}
	network := "After=network-online.target\nWants=network-online.target\n"
	target := "multi-user.target"
	if p.uid != "0" {
		network, target = "", "default.target" // of the user's services
	}
	unit := "[Unit]\nDescription=Container of the application " + p.o.Name + "\n" + network +
		"\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=" + path + " start " + p.container(r) +
		"\n\n[Install]\nWantedBy=" + target + "\n"
	if err := p.putUnit(p.layout()+".service", unit); err != nil {
		return err
	}
	// A link, because the user's systemd may not run.
	_, err = p.run(`mkdir -p "$1/$2.wants"
ln -sfn "../$3" "$1/$2.wants/$3"
if [ "$1" = /etc/systemd/system ]; then systemctl daemon-reload; fi`, p.units(), target, p.layout()+".service")
	return err
}

// units is the folder of units of systemd.
func (s *site) units() string {
	if s.uid != "0" {
		return s.home + "/.config/systemd/user"
	}
	return "/etc/systemd/system"
}

// putUnit writes a unit of systemd.
func (s *site) putUnit(name, text string) error {
	path := s.units() + "/" + name
	if err := s.put(path, []byte(text)); err != nil {
		return err
	}
	_, err := s.run(`chmod 644 "$1"`, path)
	return err
}

// dropUnits removes units of systemd.
func (s *site) dropUnits(names ...string) error {
	_, err := s.run(`dir=$1
shift
for u in "$@"; do
	[ -e "$dir/$u" ] || continue
	rm -f "$dir/$u" "$dir"/*.wants/"$u"
	if [ "$dir" = /etc/systemd/system ]; then systemctl daemon-reload; fi
done`, append([]string{s.units()}, names...)...)
	return err
}

// logs implements runner.
func (p *podman) logs(ctx context.Context, r *release, lines int, follow bool, out io.Writer) error {
	args := []string{"podman", "logs", "--tail", strconv.Itoa(lines)}
	if follow {
		args = append(args, "--follow")
	}
	return p.follow(ctx, out, append(args, p.container(r))...)
}

// removeState implements runner.
func (p *podman) removeState() error {
	_, err := p.run(`command -v podman >/dev/null || exit 0
if podman volume exists "$1"; then podman volume rm --force "$1" >/dev/null; fi`, p.volume())
	return err
}

var _ runner = (*podman)(nil)

// environment returns the variables of a release without secrets.
func environment(image []string, more ...string) []string {
	return append(slices.Clone(image), more...)
}
