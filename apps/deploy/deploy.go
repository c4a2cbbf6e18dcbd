// Package deploy runs applications on hosts that are reached over SSH, as containers of Podman or as services of
// systemd. A new release starts beside the old one and takes the listening sockets over (the server's setting
// handover), so that no request is lost. A release that does not become ready is removed, and the old one stays.
//
// A host keeps everything in one folder: the files of images by digest (blobs), and state.json, which names the
// releases. The host runs commands of POSIX, tar, gzip, sha256sum, flock and timeout; nothing has to be installed.
//
// The package owns the folder on the hosts, the switch between releases, and the containers and units. It must not know
// how images are made, nor what a configuration file means.
package deploy

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"millrace/apps/image"
	"millrace/internal/sshclient"
)

// Kept is the number of releases that a host keeps.
const Kept = 3

// Kinds of releases.
const (
	Podman  = "podman"
	Systemd = "systemd"
)

// DefaultWait is how long a release may take to become ready.
const DefaultWait = 2 * time.Minute

// Options say what to deploy, and how.
type Options struct {
	Name string // of the application: lower-case letters, digits, dashes, dots and underscores
	SSH  sshclient.Options

	// Folder is the folder on the hosts, an absolute path; "" = /var/lib/millrace-apps/NAME for root, and
	// ~/.local/share/millrace-apps/NAME for other users.
	Folder string

	With       string // Podman or Systemd
	Image      *image.Contents
	Commit     string // of the application, "" = unknown
	HTTP, GRPC string // addresses; "" = DefaultHTTP, DefaultGRPC; GRPC may be off
	Health     string // address of the health check, such as https://example.org; "" = HTTP on the host
	Secrets    []Secret
	Podman     []string      // further options of podman create
	StopFirst  bool          // stop the old release before the new one starts
	Force      bool          // make a release although nothing has changed
	Wait       time.Duration // for a release to become ready; 0 = DefaultWait

	Progress func(host, text string) // called by the goroutine of the call; nil = none
	Failed   func(Result)            // called for a target that failed, and for the targets after it; nil = none
}

// Default addresses.
const (
	DefaultHTTP = "127.0.0.1:8000"
	DefaultGRPC = "127.0.0.1:8001"
)

// Result is what a deploy did on a host.
type Result struct {
	Target   string   `json:"target"`
	Release  int      `json:"release"`
	Image    string   `json:"image"`
	Previous int      `json:"previous"` // 0 = none
	Copied   int64    `json:"copied"`   // bytes
	Seconds  float64  `json:"seconds"`
	Notes    []string `json:"notes"`

	// Unchanged: the release serves the image already, with these settings and secrets.
	Unchanged bool `json:"unchanged"`

	// Error is why a target failed. Release is then the release that serves, 0 = none or unknown.
	Error    string `json:"error,omitempty"`
	NotTried bool   `json:"not_tried,omitempty"` // a target before failed
}

var nameForm = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*$`)

func (o *Options) check() error {
	if len(o.Name) > 60 || !nameForm.MatchString(o.Name) {
		return fmt.Errorf("%q is no name for an application on hosts: want at most 60 lower-case letters, digits, "+
			"dashes, dots and underscores", o.Name)
	}
	if o.Folder != "" && (!strings.HasPrefix(o.Folder, "/") || strings.ContainsAny(o.Folder, ":,") ||
		strings.ContainsFunc(o.Folder, unicode.IsControl) ||
		strings.Trim(o.Folder, "/.") == "") {
		return fmt.Errorf("%q is no absolute path of a folder", o.Folder)
	}
	if o.Wait <= 0 {
		o.Wait = DefaultWait
	}
	if o.HTTP == "" {
		o.HTTP = DefaultHTTP
	}
	if o.GRPC == "" {
		o.GRPC = DefaultGRPC
	}
	if o.Progress == nil {
		o.Progress = func(string, string) {}
	}
	if o.Failed == nil {
		o.Failed = func(Result) {}
	}
	return CheckSecrets(o.Secrets)
}

// state is state.json on a host.
type state struct {
	Version  int       `json:"version"`
	Name     string    `json:"name,omitempty"` // of the application
	Current  int       `json:"current"`        // the release that serves; 0 = none
	Starting int       `json:"starting"`       // the release of a deploy that has not ended; 0 = none
	Releases []release `json:"releases"`       // the oldest first
}

// release is a release on a host.
type release struct {
	Number  int       `json:"number"`
	With    string    `json:"with"`
	Image   string    `json:"image"`  // digest of the manifest
	Config  string    `json:"config"` // digest, which Podman calls the image's id
	Layers  []string  `json:"layers"`
	Size    int64     `json:"size"` // of the manifest
	Commit  string    `json:"commit,omitempty"`
	HTTP    string    `json:"http"`
	GRPC    string    `json:"grpc"`
	Secrets []string  `json:"secrets,omitempty"` // names
	Salt    string    `json:"salt,omitempty"`    // of Digest
	Digest  string    `json:"digest,omitempty"`  // of the secrets, see secretsDigest
	At      time.Time `json:"at"`

	Arguments []string `json:"arguments"`
	Podman    []string `json:"podman,omitempty"`
	Health    string   `json:"health"`
}

func (s *state) of(number int) *release {
	i := slices.IndexFunc(s.Releases, func(r release) bool { return r.Number == number })
	if i < 0 {
		return nil
	}
	return &s.Releases[i]
}

func (s *state) drop(number int) {
	s.Releases = slices.DeleteFunc(s.Releases, func(r release) bool { return r.Number == number })
}

// runner runs releases on a host.
type runner interface {
	check() error // whether the host has what it needs
	install(ctx context.Context, r *release, secrets []Secret) error
	start(r *release) error
	status(of ...*release) ([]status, error)
	healthy(r *release) error // nil if the server at the address of r is ready
	stop(r *release) error    // waits for the drain
	remove(r *release) error  // after a stop; also what is not there
	boot(r, before *release) error
	logs(ctx context.Context, r *release, lines int, follow bool, out io.Writer) error
}

// status is the state of a release's process.
type status struct {
	running  bool
	restarts bool   // has ended with a failure, and was started again
	text     string // for messages
}

// site is an application on a host, locked.
type site struct {
	*host
	o       *Options
	folder  string
	uid     string
	systemd bool // is the first process
	machine string
	home    string // of the user
	state   state
	release func() // the lock
	notes   []string
}

// probeScript prints what deploys need to know about a host.
const probeScript = `id -u
uname -m
printf '%s\n' "${HOME:-/}"
if [ -d /run/systemd/system ]; then echo systemd; else echo none; fi
if [ "$(command -v printf)" != printf ]; then
	echo "the host's sh has no printf of its own: install dash or bash" >&2
	exit 1
fi
for p in flock timeout tar gzip sha256sum; do
	command -v $p >/dev/null && continue
	echo "the host has no $p: install it" >&2
	exit 1
done
`

// open connects to a host and locks the application there.
func open(ctx context.Context, t Target, o *Options, owner string) (*site, error) {
	h, err := connect(ctx, t, o.SSH)
	if err != nil {
		return nil, err
	}
	s := &site{host: h, o: o, release: func() {}}
	if err := s.begin(owner); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// begin looks at the host, locks the application, and reads its state.
func (s *site) begin(owner string) error {
	if err := s.probe(); err != nil {
		return err
	}
	if owner != "" {
		release, err := s.lock(s.folder, owner)
		if err != nil {
			return err
		}
		s.release = release
		if err := s.only(s.folder + "/work"); err != nil {
			return err
		}
	}
	return s.read()
}

func (s *site) probe() error {
	text, err := s.run(probeScript)
	if err != nil {
		return err
	}
	lines := strings.Split(text, "\n")
	if len(lines) != 4 {
		return fmt.Errorf("%s: the shell of the user answers %q: give the user a POSIX shell", s.name, text)
	}
	s.uid, s.machine, s.home, s.systemd = lines[0], lines[1], strings.TrimSuffix(lines[2], "/"), lines[3] == "systemd"
	s.folder = s.o.Folder
	if s.folder == "" {
		s.folder = "/var/lib/millrace-apps/"
		if s.uid != "0" {
			s.folder = s.home + "/.local/share/millrace-apps/"
		}
		s.folder += s.o.Name
	}
	s.place = s.folder
	return nil
}

func (s *site) close() {
	s.release()
	s.host.close()
}

func (s *site) say(format string, args ...any) { s.o.Progress(s.name, fmt.Sprintf(format, args...)) }

// read reads the state; a host without the application has none.
func (s *site) read() error {
	text, err := s.run(`if [ -e "$1/state.json" ]; then cat "$1/state.json"; fi`, s.folder)
	if err != nil {
		return err
	}
	s.state = state{Version: 1}
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &s.state); err != nil || s.state.Version != 1 {
		return fmt.Errorf("%s: %s/state.json is not of this program: remove the folder, or give another by "+
			"--target-folder", s.name, s.folder)
	}
	if s.state.Name != "" && s.state.Name != s.o.Name {
		return fmt.Errorf("%s: the folder %s belongs to the application %s: give another by --target-folder", s.name,
			s.folder, s.state.Name)
	}
	return nil
}

func (s *site) write() error {
	s.state.Name = s.o.Name
	text, err := json.MarshalIndent(s.state, "", "  ")
	if err != nil {
		return err
	}
	return s.put(s.folder+"/state.json", append(text, '\n'))
}

// put writes a small file with mode 0600: all of it, or nothing.
func (s *site) put(path string, data []byte) error {
	_, err := s.run(`umask 077
mkdir -p "${1%/*}"
if ! printf %s "$2" | cat >"$1.new" || [ "$(wc -c <"$1.new")" -ne "$3" ]; then
	rm -f "$1.new"
	echo "$1 cannot be written" >&2
	exit 1
fi
mv -f "$1.new" "$1"`, path, string(data), fmt.Sprint(len(data)))
	return err
}

// foreign refuses a folder without releases if a script that lists containers or units prints one of the application:
// the releases of another folder have the same names.
func (s *site) foreign(script, suffix string) error {
	if len(s.state.Releases) > 0 {
		return nil
	}
	text, err := s.run(script)
	if err != nil {
		return err
	}
	for name := range strings.Lines(text) {
		name = strings.TrimSpace(name)
		number, is := strings.CutPrefix(name, "millrace-"+s.o.Name+"-r")
		if _, err := strconv.Atoi(strings.TrimSuffix(number, suffix)); is && err == nil {
			return fmt.Errorf("%s: %s is there, of a deploy with another folder than %s: give that folder by "+
				"--target-folder, or use the command remove with that folder before", s.name, name, s.folder)
		}
	}
	return nil
}

func (s *site) runner(with string) (runner, error) {
	switch with {
	case Podman:
		return &podman{s}, nil
	case Systemd:
		return &systemd{s}, nil
	}
	return nil, fmt.Errorf("%q is no way to run releases: want %s or %s", with, Podman, Systemd)
}

// Run deploys the image to targets, one after the other, and stops at the first failure. done is called after each.
func Run(ctx context.Context, targets []Target, o Options, owner string, done func(Result)) error {
	if err := o.check(); err != nil {
		return err
	}
	tried := 0
	err := each(targets, func(t Target) (string, error) {
		tried++
		r, err := deployTo(ctx, t, &o, owner)
		if err != nil {
			o.Failed(r)
			return "", err
		}
		done(r)
		return fmt.Sprintf("the release %d", r.Release), nil
	})
	if err != nil {
		for _, t := range targets[tried:] {
			o.Failed(Result{Target: t.String(), Notes: []string{}, NotTried: true})
		}
	}
	return err
}

// deployTo deploys to a target. After an error, the result has the error, and the release that serves.
func deployTo(ctx context.Context, t Target, o *Options, owner string) (Result, error) {
	began := time.Now()
	r := &Result{}
	s, err := open(ctx, t, o, owner)
	notes := []string{}
	if err == nil {
		defer s.close()
		if r, err = s.deploy(ctx); err != nil {
			r = &Result{}
			if now := s.state.of(s.state.Current); now != nil && !errors.Is(err, errLost) {
				r.Release, r.Image = now.Number, now.Image
			}
		}
		notes = append(notes, s.notes...)
	}
	if err != nil {
		r.Error = err.Error()
	}
	r.Target, r.Seconds, r.Notes = t.String(), time.Since(began).Seconds(), notes
	return *r, err
}

// each calls do for targets, and says at a failure which targets have what.
func each(targets []Target, do func(Target) (string, error)) error {
	var have []string
	for i, t := range targets {
		got, err := do(t)
		if err == nil {
			have = append(have, t.String()+" has "+got)
			continue
		}
		for _, rest := range targets[i+1:] {
			have = append(have, rest.String()+" is as before")
		}
		if len(have) > 0 {
			err = fmt.Errorf("%w\n%s", err, strings.Join(have, "\n"))
		}
		return err
	}
	return nil
}

// deploy makes a release of the image and switches to it.
func (s *site) deploy(ctx context.Context) (*Result, error) {
	run, err := s.runner(s.o.With)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.checkMachine(), run.check()); err != nil {
		return nil, err
	}
	if err := s.recover(ctx); err != nil {
		return nil, err
	}
	r, err := s.newRelease()
	if err != nil {
		return nil, err
	}
	before := s.state.of(s.state.Current)
	if before != nil && before.With != r.With {
		return nil, fmt.Errorf("%s: the application runs there with %s: use --with %s, or the command remove before",
			s.name, before.With, before.With)
	}
	if result := s.unchanged(run, r, before); result != nil {
		return result, nil
	}
	copied, err := s.copy(ctx, r)
	if err != nil {
		return nil, err
	}
	result := &Result{Release: r.Number, Image: r.Image, Previous: s.state.Current, Copied: copied}
	s.state.Starting = r.Number
	s.state.Releases = append(s.state.Releases, *r)
	if err := s.write(); err != nil {
		return nil, err
	}
	if before != nil {
		before = s.state.of(before.Number) // append may have moved the list
	}
	if err := s.turn(ctx, run, r, before); err != nil {
		return nil, s.rollBack(run, r, before, err)
	}
	s.state.Current, s.state.Starting = r.Number, 0
	if err := s.write(); err != nil {
		return nil, err
	}
	if before != nil {
		s.notes = append(s.notes, changes(before, r)...)
	}
	s.bootNote(run, r, before)
	s.say("removes old releases")
	if err := s.prune(); err != nil {
		s.notes = append(s.notes, "old releases were not removed: "+err.Error())
	}
	return result, nil
}

// unchanged returns the result of a deploy that has nothing to do, or nil.
func (s *site) unchanged(run runner, r, before *release) *Result {
	if s.o.Force || before == nil || before.With != r.With || before.Image != r.Image || before.HTTP != r.HTTP ||
		before.GRPC != r.GRPC || before.Health != r.Health || !slices.Equal(before.Arguments, r.Arguments) ||
		!slices.Equal(before.Podman, r.Podman) || before.Digest != secretsDigest(before.Salt, s.o.Secrets) {
		return nil
	}
	if st, err := run.status(before); err != nil || !st[0].running || run.healthy(before) != nil {
		return nil
	}
	return &Result{Release: before.Number, Image: r.Image, Previous: before.Number, Unchanged: true}
}

// changes returns a note for each setting in which r differs from the release before it. A deploy knows nothing of the
// flags of the last deploy.
func changes(before, r *release) (notes []string) {
	health := func(r *release) string {
		if own, err := local(r.HTTP); err == nil && own == r.Health {
			return "that of HTTP"
		}
		return r.Health
	}
	list := func(of []string) string {
		return cmp.Or(strings.Join(of, " "), "none")
	}
	for _, c := range []struct{ what, was, is string }{
		{"the address of HTTP was", before.HTTP, r.HTTP},
		{"the address of gRPC was", before.GRPC, r.GRPC},
		{"the address of the health check was", health(before), health(r)},
		{"the options of Podman were", list(before.Podman), list(r.Podman)},
		{"the names of the secrets were", list(slices.Sorted(slices.Values(before.Secrets))),
			list(slices.Sorted(slices.Values(r.Secrets)))},
	} {
		if c.was == c.is {
			continue
		}
		verb := " is now "
		if strings.HasSuffix(c.what, "were") {
			verb = " are now "
		}
		notes = append(notes, c.what+" "+sshclient.Printable(c.was)+", and"+verb+c.is)
	}
	return notes
}

// secretsDigest returns a digest by which a later deploy sees whether secrets have changed.
func secretsDigest(salt string, secrets []Secret) string {
	if len(secrets) == 0 {
		return ""
	}
	d := hmac.New(sha256.New, []byte(salt))
	for _, x := range secrets {
		fmt.Fprintf(d, "%s=%d %s\n", x.Name, len(x.Value), x.Value)
	}
	return hex.EncodeToString(d.Sum(nil))
}

// bootNote makes r start with the host.
func (s *site) bootNote(run runner, r, before *release) {
	if err := run.boot(r, before); err != nil {
		s.notes = append(s.notes, "the release does not start with the host: "+trimHost(err, s.name).Error())
	}
}

// turn starts r in place of before.
func (s *site) turn(ctx context.Context, run runner, r, before *release) error {
	s.say("installs release %d", r.Number)
	if err := run.install(ctx, r, s.o.Secrets); err != nil {
		return err
	}
	busy := false
	if before != nil {
		st, err := run.status(before)
		if err != nil {
			return err
		}
		busy = st[0].running
	}
	if busy && s.o.StopFirst {
		s.say("stops release %d", before.Number)
		if err := run.stop(before); err != nil {
			return err
		}
		busy = false
	}
	if !busy {
		before = nil
		if err := s.checkPorts(r); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	s.say("starts release %d", r.Number)
	if err := run.start(r); err != nil {
		return err
	}
	return s.await(ctx, run, r, before)
}

// await waits until r is ready, and before, unless nil, has left.
func (s *site) await(ctx context.Context, run runner, r, before *release) error {
	limit := time.Now().Add(s.o.Wait)
	of := []*release{r}
	if before != nil {
		of = append(of, before)
	}
	for {
		var why error
		st, err := run.status(of...)
		switch {
		case errors.Is(err, errLost):
			return err
		case err != nil:
			why = err
		case st[0].restarts:
			return s.withLogs(run, r, errors.New("it ended at its start and was started again"))
		case !st[0].running:
			return s.withLogs(run, r, fmt.Errorf("it has ended (%s)", st[0].text))
		case len(of) > 1 && st[1].running:
			s.say("release %d waits for release %d to leave", r.Number, before.Number)
			why = fmt.Errorf("the release %d still serves", before.Number)
		default:
			of = of[:1]
			if why = run.healthy(r); why == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(limit) {
			return s.withLogs(run, r, fmt.Errorf("not ready after %v (--ready-timeout): %w", s.o.Wait, why))
		}
	}
}

// withLogs adds the last lines of a release to an error.
func (s *site) withLogs(run runner, r *release, err error) error {
	var b strings.Builder
	if e := run.logs(context.Background(), r, 10, false, &bounded{&b, 8 << 10}); e == nil && b.Len() > 0 {
		text := ""
		for line := range strings.Lines(b.String()) {
			text += "\n" + sshclient.Printable(line) // no codes for the terminal
		}
		return fmt.Errorf("%w. Its last lines:%s", err, text)
	}
	return err
}

// rollBack removes r after a failure, and makes before serve, if it does not.
func (s *site) rollBack(run runner, r, before *release, failure error) error {
	text := fmt.Sprintf("%s: release %d", s.name, r.Number)
	failure = fmt.Errorf("%s: %w", text, trimHost(failure, s.name))
	if errors.Is(failure, errLost) {
		return failure
	}
	s.say("rolls back to release %d", s.state.Current)
	if err := s.undo(run, r, before); err != nil {
		return fmt.Errorf("%w\n%s: the roll-back failed, too: %w: repeat the command", failure, s.name, err)
	}
	if before == nil {
		return fmt.Errorf("%w\n%s: the release was removed, and no other release is there", failure, s.name)
	}
	return fmt.Errorf("%w\n%s: the release was removed, and release %d serves", failure, s.name, before.Number)
}

// trimHost removes the host's name from the text of an error, which gets it anew.
func trimHost(err error, name string) error {
	if text, ok := strings.CutPrefix(err.Error(), name+": "); ok {
		return trimmed{err, text}
	}
	return err
}

type trimmed struct {
	error
	text string
}

func (t trimmed) Error() string { return t.text }
func (t trimmed) Unwrap() error { return t.error }

// undo removes r, and starts before if it does not run.
func (s *site) undo(run runner, r, before *release) error {
	if err := run.remove(r); err != nil {
		return err
	}
	if before != nil {
		st, err := run.status(before)
		if err != nil {
			return err
		}
		if !st[0].running {
			if err := run.start(before); err != nil {
				return err
			}
			if err := s.await(context.Background(), run, before, nil); err != nil {
				return err
			}
		}
	}
	s.state.drop(r.Number)
	s.state.Starting = 0
	return errors.Join(s.write(), s.sweep())
}

// recover finishes or undoes a deploy that has died.
func (s *site) recover(ctx context.Context) error {
	r := s.state.of(s.state.Starting)
	if r == nil {
		return nil
	}
	copied := *r
	r = &copied // undo changes the list
	run, err := s.runner(r.With)
	if err != nil {
		return err
	}
	before := s.state.of(s.state.Current)
	if before != nil {
		b := *before
		before = &b
	}
	of := []*release{r}
	if before != nil {
		of = append(of, before)
	}
	st, err := run.status(of...)
	if err != nil {
		return err
	}
	// The old release may have passed the sockets on, and wait for its clients to leave: only r serves new ones.
	finished := false
	if st[0].running && !st[0].restarts {
		err := s.await(ctx, run, r, before)
		if ctx.Err() != nil || errors.Is(err, errLost) {
			return err
		}
		finished = err == nil
	}
	if finished {
		s.state.Current, s.state.Starting = r.Number, 0
		s.notes = append(s.notes, fmt.Sprintf("an earlier deploy, which did not end, was finished: release %d",
			r.Number))
		s.bootNote(run, r, before)
		return s.write()
	}
	s.say("undoes release %d of a deploy that did not end", r.Number)
	if err := s.undo(run, r, before); err != nil {
		return fmt.Errorf("%s: release %d of a deploy that did not end cannot be removed: %w", s.name, r.Number,
			trimHost(err, s.name))
	}
	s.notes = append(s.notes, fmt.Sprintf("an earlier deploy, which did not end, was undone: release %d", r.Number))
	return ctx.Err()
}

// newRelease returns the release of the options.
func (s *site) newRelease() (*release, error) {
	c := s.o.Image
	r := &release{Number: 1, With: s.o.With, Image: c.Manifest.Digest, Size: c.Manifest.Size, Config: c.Config.Digest,
		Commit: s.o.Commit, HTTP: s.o.HTTP, GRPC: s.o.GRPC, At: time.Now().UTC().Truncate(time.Second),
		Podman: s.o.Podman, Health: s.o.Health, Salt: rand.Text()}
	r.Digest = secretsDigest(r.Salt, s.o.Secrets)
	for _, l := range c.Layers {
		r.Layers = append(r.Layers, l.Digest)
	}
	for _, x := range s.o.Secrets {
		r.Secrets = append(r.Secrets, x.Name)
	}
	for _, old := range s.state.Releases {
		r.Number = max(r.Number, old.Number+1)
	}
	var err error
	if r.Arguments, err = arguments(c.Arguments, r.HTTP, r.GRPC); err != nil {
		return nil, err
	}
	if r.Health == "" {
		r.Health, err = local(r.HTTP)
	}
	return r, err
}

// prune removes all but the last releases. The release that serves stays.
func (s *site) prune() error {
	for len(s.state.Releases) > Kept {
		i := slices.IndexFunc(s.state.Releases, func(r release) bool { return r.Number != s.state.Current })
		old := s.state.Releases[i]
		run, err := s.runner(old.With)
		if err != nil {
			return err
		}
		if err := run.remove(&old); err != nil {
			return err
		}
		s.state.drop(old.Number)
		if err := s.write(); err != nil {
			return err
		}
	}
	return s.sweep()
}
