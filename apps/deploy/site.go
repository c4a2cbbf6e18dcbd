package deploy

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

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
		if err := s.own(); err != nil {
			return err
		}
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

// own refuses a folder with files of other software under the names of ours, which a deploy would overwrite and a
// removal delete.
func (s *site) own() error {
	text, err := s.run(`[ -e "$1/state.json" ] || [ -e "$1/owner" ] || for name in layers releases container lock work; do
	if [ -e "$1/$name" ]; then echo "$name"; break; fi
done`, s.folder)
	if err != nil {
		return err
	}
	if name := strings.TrimSpace(text); name != "" {
		return fmt.Errorf("%s: the folder %s has files of other software, such as %s: give another folder by "+
			"--target-folder", s.name, s.folder, name)
	}
	return nil
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
