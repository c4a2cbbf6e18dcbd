package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"millrace/internal/sshclient"
)

// Remove stops the application on the targets and deletes the application there, one after the other. The application's
// own data stays, unless data is set. done is called for each target; was reports whether the application was there.
// An application that no target has, or had before a removal that kept data, is an error.
func Remove(ctx context.Context, targets []Target, o Options, owner string, data bool,
	done func(t Target, was bool)) error {
	if err := o.check(); err != nil {
		return err
	}
	known := false
	var without []Target
	var missing []string
	err := each(targets, func(t Target) (string, error) {
		s, err := open(ctx, t, &o, owner)
		if err != nil {
			return "", err
		}
		defer s.close()
		if err := s.checkSource(); err != nil {
			return "", err
		}
		was := s.state.Name != "" || len(s.state.Releases) > 0
		had := was
		if !was {
			if had, err = s.hasState(); err != nil {
				return "", err
			}
		}
		others, err := s.others()
		if err != nil {
			return "", err
		}
		if err := s.removeAll(data); err != nil {
			return "", err
		}
		known = known || had
		if had {
			done(t, was)
		} else {
			without = append(without, t)
			missing = append(missing, fmt.Sprintf("%s: there was no application %s; %s", s.name, o.Name, others))
		}
		return "nothing of the application", nil
	})
	if err != nil {
		return err
	}
	if !known {
		return fmt.Errorf("%s. Compare --config, --name and --target-folder", strings.Join(missing, "\n"))
	}
	for _, t := range without {
		done(t, false)
	}
	return nil
}

// checkSource refuses an application that was deployed from another repository or folder than that of the options.
func (s *site) checkSource() error {
	if len(s.state.Releases) == 0 {
		return nil
	}
	if was := s.state.Releases[len(s.state.Releases)-1].Source; was != "" && s.o.Source != "" && was != s.o.Source {
		return fmt.Errorf("%s: the application %s was deployed from %s, and --config is %s: correct --config, or name "+
			"the application by --name alone", s.name, s.o.Name, sshclient.Printable(was), s.o.Source)
	}
	return nil
}

// hasState reports whether an earlier removal has kept the application's own data.
func (s *site) hasState() (bool, error) {
	text, err := s.run(`if command -v podman >/dev/null && podman volume exists "$1"; then echo yes; fi
if [ "$3" = 0 ]; then for at in "/var/lib/private/$2" "/var/lib/$2"; do [ ! -e "$at" ] || echo yes; done; fi`,
		(&podman{s}).volume(), "millrace-"+s.o.Name, s.uid)
	return text != "", err
}

// others lists the other applications beside the folder.
func (s *site) others() (string, error) {
	const most = 20
	beside := path.Dir(s.folder)
	text, err := s.run(`for f in "$1"/*/state.json; do
	if [ -e "$f" ]; then f=${f%/state.json}; printf '%s\n' "${f##*/}"; fi
done | head -n "$2"`, beside, fmt.Sprint(most))
	names := strings.Fields(sshclient.Printable(strings.ReplaceAll(text, "\n", " ")))
	switch len(names) {
	case 0:
		return beside + " has no applications", err
	case most:
		names = append(names[:most-1], "...")
	}
	return "the applications are " + strings.Join(names, ", "), err
}

func (s *site) removeAll(data bool) error {
	for len(s.state.Releases) > 0 {
		r := s.state.Releases[len(s.state.Releases)-1]
		run, err := s.runner(r.With)
		if err != nil {
			return err
		}
		s.say("removes release %d", r.Number)
		if err := run.remove(&r); err != nil {
			return err
		}
		s.state.drop(r.Number)
		if s.state.Current == r.Number {
			s.state.Current = 0
		}
		if err := s.write(); err != nil {
			return err
		}
	}
	if err := s.dropUnits(s.layout() + ".service"); err != nil {
		return err
	}
	if data {
		if err := errors.Join((&podman{s}).removeState(), (&systemd{s}).removeState()); err != nil {
			return err
		}
	}
	return s.clearFolder()
}

// clearFolder removes the files of the application's folder, and the folder if it has no other files. The locks are
// open, and go with the folder.
func (s *site) clearFolder() error {
	_, err := s.run(`rm -rf "$1/`+s.layout()+`" "$1/`+s.layout()+`-r"* "$1/layers" "$1/releases"
rm -f "$1/state.json" "$1/container" "$1/owner" "$1/lock" "$1/work"
rmdir "$1" 2>/dev/null || :`, s.folder)
	return err
}

// follow runs a command with its output, which may have no end. The end of the session ends the command.
func (s *site) follow(ctx context.Context, out io.Writer, command ...string) error {
	return s.stream(ctx, `exec 3<&0
"$@" 2>&1 </dev/null 3<&- &
p=$!
{ cat <&3; kill "$p"; } >/dev/null 2>&1 &
exec 3<&-
wait "$p"`, openInput, out, command...)
}

// Logs writes the last lines of the release that serves, for each target, and with follow the lines that come, until
// ctx ends. Only one target can be followed.
func Logs(ctx context.Context, targets []Target, o Options, lines int, follow bool, out func(Target) io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	if follow && len(targets) > 1 {
		return errors.New("only one target can be followed: name one")
	}
	for _, t := range targets {
		if err := logsOf(ctx, t, &o, lines, follow, out(t)); err != nil {
			return err
		}
	}
	return nil
}

func logsOf(ctx context.Context, t Target, o *Options, lines int, follow bool, out io.Writer) error {
	s, err := open(ctx, t, o, "")
	if err != nil {
		return err
	}
	defer s.close()
	r := s.state.of(s.state.Current)
	if r == nil {
		r = s.state.of(s.state.Starting)
	}
	if r == nil {
		return fmt.Errorf("%s: the application %s is not there: deploy it, or name the application by --name", s.name,
			o.Name)
	}
	run, err := s.runner(r.With)
	if err != nil {
		return err
	}
	err = run.logs(ctx, r, lines, follow, out)
	if follow && ctx.Err() != nil {
		return nil // the user has ended the command
	}
	return err
}
