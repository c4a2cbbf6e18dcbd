package build

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"millrace/apps"
)

// victim makes a file outside of an application, and returns a check that the file is unchanged.
func victim(t *testing.T) (path string, check func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(path, []byte("victim"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func() {
		t.Helper()
		if text, err := os.ReadFile(path); err != nil || string(text) != "victim" {
			t.Errorf("the file outside of the application is %q, %v", text, err)
		}
	}
}

// TestHostileEnvironment: a package that leaves links and FIFOs in the environment changes no other file, and the
// build ends.
func TestHostileEnvironment(t *testing.T) {
	p := newPlace(t, nil)
	outside, unchanged := victim(t)
	j := &job{Options: p.o, app: p.app, needs: p.needs, base: t.TempDir(), dir: p.app.Root}
	for _, leave := range []func(name string) error{
		func(name string) error { return os.Symlink(outside, name) },
		func(name string) error { return syscall.Mkfifo(name, 0o600) },
	} {
		path := filepath.Join(j.base, "environment")
		env := &Environment{Path: path, Key: "key"}
		err := errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700), leave(filepath.Join(path, "millrace.json.new")),
			leave(filepath.Join(path, "millrace.json")), leave(filepath.Join(path, "report.json")),
			leave(filepath.Join(path, "packages.txt")))
		if err != nil {
			t.Fatal(err)
		}
		if err := writeControl(markFile(path), env); err != nil {
			t.Error(err)
		}
		if got, err := readEnvironment(path); err != nil || got.Key != "key" {
			t.Errorf("%+v %v", got, err)
		}
		if _, _, err := readReport(filepath.Join(path, "report.json")); err == nil {
			t.Error("the report was read")
		}
		p.needs.Packages = []string{"one"}
		if _, err := j.files(t.Context(), path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("the requirements were written: %v", err)
		}
	}
	unchanged()
}

// TestHostileLockFile: links in the application's folder lead neither the lock file nor its reading elsewhere.
func TestHostileLockFile(t *testing.T) {
	p := newPlace(t, nil)
	outside, unchanged := victim(t)
	p.setup("ln -s "+outside+" millrace.lock.new", "ln -s "+outside+" millrace.lock")
	p.build()
	env := &Environment{}
	for _, err := range []error{
		func() error { _, err := WriteLock(p.app, env); return err }(),
		func() error { _, err := readLock(LockFile(p.app)); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), p.path("millrace.lock")+" is not a regular file") {
			t.Error(err)
		}
	}
	p.setup("rm millrace.lock")
	p.build()
	if _, err := WriteLock(p.app, env); err != nil {
		t.Error(err)
	}
	sub := &apps.App{Root: p.app.Root, File: p.path("sub/millrace.yaml")}
	p.setup("ln -s " + filepath.Dir(outside) + " sub")
	p.build()
	if _, err := WriteLock(sub, env); err == nil {
		t.Error("the lock file was written in another folder")
	}
	unchanged()
}

// TestReplacedEnvironment: an environment that a build has removed or not completed is not in use.
func TestReplacedEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "environment")
	create := func() {
		t.Helper()
		err := errors.Join(os.Mkdir(path, 0o700), writeControl(markFile(path), &Environment{Path: path}))
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func() *os.File {
		t.Helper()
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	create()
	if env, err := keep(open(), path); err != nil || env == nil {
		t.Errorf("%+v %v", env, err)
	}
	if err := removeFolder(path); err == nil {
		t.Error("an environment in use was removed")
	}
	path += "2"
	create()
	old := open()
	if err := removeFolder(path); err != nil {
		t.Fatal(err)
	}
	create()
	if env, err := keep(old, path); err != nil || env != nil {
		t.Errorf("a removed folder: %+v %v", env, err)
	}
	if err := os.Remove(markFile(path)); err != nil {
		t.Fatal(err)
	}
	if env, err := keep(open(), path); err != nil || env != nil {
		t.Errorf("a folder that is not complete: %+v %v", env, err)
	}
}
