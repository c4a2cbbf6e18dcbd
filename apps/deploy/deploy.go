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
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
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

	// Source is the repository or folder of the application, without credentials; "" = unknown.
	Source string

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
			if len(s.state.Releases) == 0 && !errors.Is(err, errLost) {
				if e := s.clearFolder(); e != nil {
					s.notes = append(s.notes, "the folder was not removed: "+e.Error())
				}
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
	if len(s.state.Releases) == 0 {
		had, err := s.hasState()
		if err != nil {
			return nil, err
		}
		s.state.Fresh = !had
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
	s.state.Current, s.state.Starting, s.state.Fresh = r.Number, 0, false
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
