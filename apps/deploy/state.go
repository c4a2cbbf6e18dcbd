package deploy

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"millrace/internal/sshclient"
)

// state is state.json on a host.
type state struct {
	Version  int       `json:"version"`
	Name     string    `json:"name,omitempty"` // of the application
	Current  int       `json:"current"`        // the release that serves; 0 = none
	Starting int       `json:"starting"`       // the release of a deploy that has not ended; 0 = none
	Releases []release `json:"releases"`       // the oldest first

	// Fresh: the application's own data are of a first release that has not become ready.
	Fresh bool `json:"fresh,omitempty"`
}

// release is a release on a host.
type release struct {
	Number  int       `json:"number"`
	With    string    `json:"with"`
	Image   string    `json:"image"`  // digest of the manifest
	Config  string    `json:"config"` // digest, which Podman calls the image's id
	Layers  []string  `json:"layers"`
	Size    int64     `json:"size"`             // of the manifest
	Source  string    `json:"source,omitempty"` // see Options
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

// newRelease returns the release of the options.
func (s *site) newRelease() (*release, error) {
	c := s.o.Image
	r := &release{Number: 1, With: s.o.With, Image: c.Manifest.Digest, Size: c.Manifest.Size, Config: c.Config.Digest,
		Source: s.o.Source, Commit: s.o.Commit, HTTP: s.o.HTTP, GRPC: s.o.GRPC,
		At: time.Now().UTC().Truncate(time.Second), Podman: s.o.Podman, Health: s.o.Health, Salt: rand.Text()}
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
		{"the repository or folder was", cmp.Or(before.Source, r.Source), cmp.Or(r.Source, before.Source)},
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
