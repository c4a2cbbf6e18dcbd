package deploy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// systemd runs releases as services. The root folder of a service has the image's files, hard links to the unpacked
// layers.
type systemd struct{ *site }

func (d *systemd) unit(r *release) string {
	return fmt.Sprintf("millrace-%s-r%d.service", d.o.Name, r.Number)
}

func (d *systemd) at(r *release) string { return fmt.Sprintf("%s/releases/%d", d.folder, r.Number) }

// check implements runner.
func (d *systemd) check() error {
	if !d.site.systemd {
		return fmt.Errorf("%s: systemd does not run there: use --with %s", d.name, Podman)
	}
	if d.uid != "0" {
		return fmt.Errorf("%s: services need root: deploy to root@HOST, or use --with %s, which other users may, too",
			d.name, Podman)
	}
	if len(d.o.Podman) > 0 {
		return fmt.Errorf("--podman-option: is for --with %s", Podman)
	}
	if err := d.foreign(`cd /etc/systemd/system
ls`, ".service"); err != nil {
		return err
	}
	_, err := d.run(`command -v setpriv >/dev/null && exit 0
echo "the host has no setpriv: install util-linux" >&2
exit 1`)
	return err
}

// installScript unpacks the missing layers, and makes the root folder from the layers.
const installScript = `blobs=$1
layers=$2
root=$3
shift 3
umask 022
mkdir -p "$layers"
rm -rf "$root" "$layers"/*.part
mkdir -p "$root"
for d in "$@"; do
	if [ ! -d "$layers/$d" ]; then
		mkdir "$layers/$d.part"
		tar -xpzf "$blobs/$d" -C "$layers/$d.part"
		# No service of an image has a use for devices, and for programs with the rights of their owners.
		find "$layers/$d.part" \( -type b -o -type c -o -type p -o -type s \) -exec rm -f {} +
		find "$layers/$d.part" -type f \( -perm -4000 -o -perm -2000 \) -exec chmod ug-s {} +
		mv "$layers/$d.part" "$layers/$d"
	fi
	if [ -n "$(find "$layers/$d" -name '.wh.*' | head -n 1)" ]; then
		echo "a layer of the base image removes files of another layer: use a base image with one layer, or --with podman" >&2
		exit 1
	fi
	cp -alf "$layers/$d/." "$root/"
done
# A link of the image would lead to folders and files of the host.
for d in proc sys dev run tmp var var/tmp etc; do
	if [ -L "$root/$d" ]; then
		echo "/$d is a link in the image: use another base image, or --with podman" >&2
		exit 1
	fi
	mkdir -p "$root/$d"
done
for f in resolv.conf hosts; do
	if [ -L "$root/etc/$f" ]; then rm -f "$root/etc/$f"; fi
	[ -e "$root/etc/$f" ] || : >"$root/etc/$f"
done
chmod 755 "$root"`

// install implements runner.
func (d *systemd) install(ctx context.Context, r *release, secrets []Secret) error {
	args := []string{d.blobs(), d.folder + "/layers", d.at(r) + "/root"}
	for _, l := range r.Layers {
		args = append(args, hexOf(l))
	}
	if _, err := d.runFor(ctx, unpackTime, installScript, args...); err != nil {
		return err
	}
	if len(secrets) > 0 {
		var b strings.Builder
		for _, s := range secrets {
			fmt.Fprintf(&b, "%s=%s\n", s.Name, quoteValue(string(s.Value)))
		}
		if err := d.put(d.at(r)+"/secrets", []byte(b.String())); err != nil {
			return err
		}
	}
	if err := d.putUnit(d.unit(r), d.text(r, d.o.Image.Environment)); err != nil {
		return err
	}
	_, err := d.run(`systemctl daemon-reload`)
	return err
}

// quoteValue quotes a value for an EnvironmentFile of systemd.
func quoteValue(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", `$`, `\$`).Replace(text) + `"`
}

// quoteWord quotes a word of a unit.
func quoteWord(text string) string { return strings.ReplaceAll(quoteVariable(text), `$`, `$$`) }

// quoteVariable quotes NAME=VALUE of a unit, where $ means itself. For systemd, \r ends a line, too.
func quoteVariable(text string) string {
	var b strings.Builder
	for _, c := range []byte(strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`).Replace(text)) {
		if c < ' ' || c == 0x7f {
			fmt.Fprintf(&b, `\x%02x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return `"` + b.String() + `"`
}

// user returns the name of the temporary user, which all releases of an application share.
func (d *systemd) user() string {
	sum := sha256.Sum256([]byte(d.o.Name))
	return "millrace-" + hex.EncodeToString(sum[:6])
}

// text returns the unit of a release: the rules of deploy/systemd/millrace.service, in a root folder.
func (d *systemd) text(r *release, image []string) string {
	words := []string{"/usr/local/bin/millrace"}
	for _, a := range r.Arguments {
		words = append(words, quoteWord(a))
	}
	state := "millrace-" + d.o.Name
	var env strings.Builder
	for _, v := range environment(image, "HOME=/var/lib/"+state, "XDG_CACHE_HOME=/var/cache/"+state,
		"MILLRACE_HANDOVER=unix:/var/lib/"+state+"/handover.sock", "MILLRACE_ADDR="+r.Health) {
		fmt.Fprintf(&env, "Environment=%s\n", quoteVariable(v))
	}
	if len(r.Secrets) > 0 {
		fmt.Fprintf(&env, "EnvironmentFile=%s/secrets\n", strings.ReplaceAll(d.at(r), "%", "%%"))
	}
	return fmt.Sprintf(unitText, d.o.Name, r.Number, strings.Join(words, " "), state, d.user(),
		strings.ReplaceAll(d.at(r), "%", "%%"), env.String())
}

const unitText = `# Written by millrace app deploy: changes are lost.
[Unit]
Description=Millrace application %[1]s, release %[2]d
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
ExecStart=%[3]s
ExecReload=/bin/kill -HUP $MAINPID
# A release that another release has replaced ends with status 0, and stays down.
Restart=on-failure
RestartSec=2
TimeoutStopSec=30
KillMode=mixed

RootDirectory=%[6]s/root
MountAPIVFS=yes
BindReadOnlyPaths=-/etc/resolv.conf -/etc/hosts
WorkingDirectory=/app
# The releases of an application have the same user, who passes the listening sockets on.
DynamicUser=yes
User=%[5]s
StateDirectory=%[4]s
StateDirectoryMode=0700
CacheDirectory=%[4]s
CacheDirectoryMode=0700
LogsDirectory=%[4]s
LogsDirectoryMode=0700
%[7]sUMask=0077

LimitNOFILE=65536
TasksMax=4096
LimitCORE=0

NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallFilter=landlock_create_ruleset landlock_add_rule landlock_restrict_self
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
`

// start implements runner.
func (d *systemd) start(r *release) error {
	_, err := d.run(`systemctl reset-failed "$1" 2>/dev/null || :
systemctl start "$1"`, d.unit(r))
	return err
}

// status implements runner.
func (d *systemd) status(of ...*release) ([]status, error) {
	var units []string
	for _, r := range of {
		units = append(units, d.unit(r))
	}
	text, err := d.run(`systemctl show --property=ActiveState,SubState,NRestarts,ExecMainStatus "$@"`, units...)
	if err != nil {
		return nil, err
	}
	blocks := strings.Split(text, "\n\n")
	if len(blocks) != len(units) {
		return nil, fmt.Errorf("%s: systemctl show prints %q", d.name, text)
	}
	var all []status
	for _, block := range blocks {
		has := map[string]string{}
		for line := range strings.SplitSeq(block, "\n") {
			k, v, _ := strings.Cut(line, "=")
			has[k] = v
		}
		restarting := has["SubState"] == "auto-restart"
		all = append(all, status{running: has["ActiveState"] == "active" || has["ActiveState"] == "deactivating" ||
			has["ActiveState"] == "activating" && !restarting,
			restarts: restarting || has["NRestarts"] != "" && has["NRestarts"] != "0",
			text:     has["ActiveState"] + ", exit status " + has["ExecMainStatus"]})
	}
	return all, nil
}

// healthy implements runner.
func (d *systemd) healthy(r *release) error {
	// The program of the image gets the service's user, and cannot get more rights. A new process is root's until
	// systemd has changed its user.
	_, err := d.run(`pid=$(systemctl show --property=MainPID --value "$3")
[ "$pid" -gt 1 ] || { echo "the service has no process" >&2; exit 1; }
owner=$(stat -c +%u:+%g "/proc/$pid")
case $owner in
+0:* | *:+0)
	echo "the service has the rights of root" >&2
	exit 1
	;;
esac
exec setpriv --no-new-privs chroot --groups= --userspec="$owner" "$1" \
	/usr/local/bin/millrace health --addr "$2"`, d.at(r)+"/root", r.Health, d.unit(r))
	return err
}

// stop implements runner.
func (d *systemd) stop(r *release) error {
	_, err := d.run(`if [ -e "/etc/systemd/system/$1" ]; then systemctl stop "$1"; fi`, d.unit(r))
	return err
}

// remove implements runner.
func (d *systemd) remove(r *release) error {
	if err := errors.Join(d.stop(r), d.dropUnits(d.unit(r))); err != nil {
		return err
	}
	_, err := d.run(`rm -rf "$1"`, d.at(r))
	return err
}

// boot implements runner.
func (d *systemd) boot(r, before *release) error {
	var errs []error
	if before != nil {
		_, err := d.run(`systemctl --quiet disable "$1"`, d.unit(before))
		errs = append(errs, err)
	}
	_, err := d.run(`systemctl --quiet enable "$1"`, d.unit(r))
	return errors.Join(append(errs, err)...)
}

// logs implements runner.
func (d *systemd) logs(ctx context.Context, r *release, lines int, follow bool, out io.Writer) error {
	args := []string{"journalctl", "--unit", d.unit(r), "--lines", strconv.Itoa(lines), "--output", "cat",
		"--no-pager", "--quiet"}
	if follow {
		args = append(args, "--follow")
	}
	return d.follow(ctx, out, args...)
}

// removeState implements runner.
func (d *systemd) removeState() error {
	if d.uid != "0" || !d.site.systemd {
		return nil
	}
	name := "millrace-" + d.o.Name
	_, err := d.run(`for p in lib cache log; do rm -rf "/var/$p/private/$1" "/var/$p/$1"; done`, name)
	return err
}

var _ runner = (*systemd)(nil)
