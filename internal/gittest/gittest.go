// Package gittest has repositories and their servers for tests: the git program makes the repositories, and serves them
// over HTTP; OpenSSH's server serves them over SSH. All servers listen on this machine only.
package gittest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// Repository is a work tree with a repository.
type Repository struct {
	t   testing.TB
	Dir string // work tree
}

// At returns the repository in a folder.
func At(t testing.TB, dir string) *Repository { return &Repository{t, dir} }

// New returns an empty repository in a new folder with the name app; the branch is main.
func New(t testing.TB) *Repository {
	t.Helper()
	r := At(t, filepath.Join(t.TempDir(), "app"))
	if err := os.Mkdir(r.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r.Git("init", "-q", "-b", "main")
	return r
}

// Git runs the git program without any configuration of this machine.
func (r *Repository) Git(args ...string) string {
	r.t.Helper()
	c := exec.Command(testneeds.Program(r.t, "git"), args...)
	c.Dir = r.Dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=a",
		"GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := c.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Commit writes files and commits them, and returns the commit.
func (r *Repository) Commit(files map[string]string) string {
	r.t.Helper()
	for name, text := range files {
		path := filepath.Join(r.Dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600))
		if err != nil {
			r.t.Fatal(err)
		}
	}
	r.Git("add", "-A")
	r.Git("commit", "-q", "--allow-empty", "-m", "x")
	return r.Git("rev-parse", "HEAD")
}

// Bare returns the path of a bare copy.
func (r *Repository) Bare() string {
	r.t.Helper()
	dir := filepath.Join(r.t.TempDir(), "app.git")
	r.Git("clone", "-q", "--bare", r.Dir, dir)
	return dir
}
