package modelsource

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"millrace/apps/source"
	"millrace/internal/modelurl"
	"millrace/internal/sshclient"
)

// gitOrigin fetches a commit of a repository.
type gitOrigin struct {
	c    *Cache
	keys []sshclient.Key
}

var _ origin = (*gitOrigin)(nil)

func (c *Cache) openGit() (origin, error) {
	g := &gitOrigin{c: c}
	if c.o.SSHKey != "" {
		k, err := sshclient.ReadKey(c.o.SSHKey)
		if err != nil {
			return nil, fmt.Errorf("model_sources.ssh_key: %w", err)
		}
		g.keys = append(g.keys, k)
	}
	return g, nil
}

func (g *gitOrigin) parse(u modelurl.URL) (source.Source, error) {
	s, err := source.Parse(u.Base)
	if err == nil && s.Kind == source.Folder {
		err = errors.New("is no address of a repository")
	}
	return s, err
}

func (g *gitOrigin) check(u modelurl.URL) error {
	_, err := g.parse(u)
	return err
}

func (g *gitOrigin) id(u modelurl.URL) string { return u.Base }

func (g *gitOrigin) options(s source.Source, w *work) source.Options {
	o := source.Options{Keys: g.keys, Agent: g.c.o.Agent, KnownHosts: g.c.o.Hosts, AllowPrivate: g.c.o.Private,
		Timeout: g.c.o.Timeout, Idle: g.c.o.Idle, MaxSize: g.c.o.MaxSize, CA: g.c.pool}
	if hostPort, host := s.Host(); host != "" {
		t, ok := g.c.token(hostPort, host)
		switch {
		case ok:
			o.Token = t.Secret
		case strings.ToLower(hostPort) == g.c.o.GitHost:
			o.Token = g.c.o.GitToken
		}
	}
	if w != nil {
		o.Progress = func(_ string, received int64) { w.progress(received, 0) }
	}
	return o
}

func (g *gitOrigin) revision(ctx context.Context, u modelurl.URL) (string, error) {
	s, err := g.parse(u)
	if err != nil {
		return "", err
	}
	commit, err := source.Resolve(ctx, s, g.options(s, nil))
	return commit, inSettings(err)
}

func (g *gitOrigin) fetch(ctx context.Context, u modelurl.URL, revision string, w *work) (string, error) {
	s, err := g.parse(u)
	if err != nil {
		return "", err
	}
	r, err := source.Fetch(ctx, s, w.tree, g.options(s, w))
	if err != nil {
		return "", inSettings(err)
	}
	for _, name := range r.LFS {
		if u.Path == "" || name == u.Path || strings.HasPrefix(name, u.Path+"/") ||
			filepath.Dir(name) == filepath.Dir(u.Path) {
			return "", errors.New(strings.Join(r.Notes(), ". "))
		}
	}
	if s.IsCommit() {
		return revision, nil
	}
	return r.Tip, nil // the branch may have moved
}

// settings are the settings for options of package source.
var settings = strings.NewReplacer("--max-size", "model_sources.max_size", "--timeout", "model_sources.timeout",
	"--allow-private", "model_sources.allow_private", "give another key by --ssh-key or --add-ssh-key",
	"name another key by model_sources.ssh_key", "give --ssh-key FILE, or --add-ssh-key NAME:VARIABLE",
	"set model_sources.ssh_key", "set MILLRACE_GIT_TOKEN to a token or password, and",
	"name the variable with a token of the host in model_sources.tokens, and",
	"the token of MILLRACE_GIT_TOKEN: is the", "the token of MILLRACE_GIT_TOKEN or model_sources.tokens: is the")

// inSettings puts settings into an error of package source in place of options.
func inSettings(err error) error {
	if err == nil {
		return nil
	}
	return settingError{settings.Replace(err.Error()), err}
}

// settingError is an error whose text names settings.
type settingError struct {
	text string
	error
}

func (s settingError) Error() string { return s.text }

func (s settingError) Unwrap() error { return s.error }
