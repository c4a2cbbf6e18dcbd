package build

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/apps"
	"millrace/apps/program"
	"millrace/apps/source"
	"millrace/internal/testbuild"
	"millrace/internal/testneeds"
	"millrace/internal/wheeltest"
)

// place is a working directory with the folder app, an application.
type place struct {
	t     *testing.T
	app   *apps.App
	needs *apps.Needs
	o     Options
}

func newPlace(t *testing.T, files map[string]string) *place {
	t.Helper()
	if err := program.Check(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	p := &place{t: t, needs: &apps.Needs{}, o: Options{Dir: dir, Python: "python3", Tool: "pip", Limit: time.Minute}}
	for name, text := range files {
		p.write(name, text)
	}
	p.write("millrace.yaml", "")
	s, err := source.Parse(filepath.Join(dir, "app"))
	if err != nil {
		t.Fatal(err)
	}
	if p.app, err = apps.Open(s, apps.Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	p.needs.Requirements = Found(p.app.Root)
	return p
}

// pip makes builds install with pip.
func (p *place) pip() { p.o.Tool = "pip" }

// uv puts uv into PATH, where builds find it.
func (p *place) uv() {
	p.t.Helper()
	p.t.Setenv("PATH", filepath.Dir(testbuild.UV(p.t))+string(filepath.ListSeparator)+os.Getenv("PATH"))
	p.o.Tool = "auto"
}

func (p *place) path(name string) string { return filepath.Join(p.o.Dir, "app", name) }

func (p *place) write(name, text string) {
	p.t.Helper()
	err := errors.Join(os.MkdirAll(filepath.Dir(p.path(name)), 0o700), os.WriteFile(p.path(name), []byte(text), 0o600))
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) setup(lines ...string) {
	p.needs.Setup = nil
	for _, line := range lines {
		p.needs.Setup = append(p.needs.Setup, apps.Shell(line))
	}
}

func (p *place) build() *Result {
	p.t.Helper()
	r, err := Build(p.t.Context(), p.app, p.needs, p.o)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

func (p *place) refuses(want ...string) {
	p.t.Helper()
	r, err := Build(p.t.Context(), p.app, p.needs, p.o)
	if err == nil {
		p.t.Fatalf("%+v, want an error with %q", r, want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			p.t.Errorf("%v, want %q", err, w)
		}
	}
}

// wheels makes a folder with the packages greeting, which needs deep-thing, and both versions of deep-thing.
func (p *place) wheels() {
	p.t.Helper()
	p.o.Wheels = p.t.TempDir()
	for _, w := range []wheeltest.Wheel{
		{Name: "greeting", Version: "1.0", Files: map[string]string{"greeting.py": "WORD = 'Hello'\n"},
			Requires: []string{"deep_thing>=2"}},
		{Name: "deep_thing", Version: "2.0", Files: map[string]string{"deep_thing.py": "X = 2.0\n"}},
		{Name: "deep_thing", Version: "2.1", Files: map[string]string{"deep_thing.py": "X = 2.1\n"}},
	} {
		w.Write(p.t, p.o.Wheels)
	}
}

// environments are the folders of environments.
func (p *place) environments() (names []string) {
	all, _ := filepath.Glob(filepath.Join(p.o.Dir, ".repo/.millrace/app.env/????????????????????"))
	for _, name := range all {
		names = append(names, filepath.Base(name))
	}
	return names
}

// TestSetup runs setup commands in the folder of the application, where they may write, and nowhere else.
func TestSetup(t *testing.T) {
	p := newPlace(t, map[string]string{"data.txt": "data"})
	t.Setenv("MILLRACE_TOKEN", "secret-1")
	t.Setenv("SSH_AUTH_SOCK", "/secret-2")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-3")
	t.Setenv("FOR_BUILD", "passed")
	p.o.Pass = []string{"FOR_BUILD"}
	outside := filepath.Join(t.TempDir(), "private")
	if err := os.WriteFile(outside, []byte("private"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.setup("env >env.txt; cat data.txt; id >$HOME/x", "mkdir -p sub/folder && cp data.txt sub/folder/copy")
	if r := p.build(); len(r.Setup) != 2 || r.Environment != nil {
		t.Errorf("%+v", r)
	}
	env, err := os.ReadFile(p.path("env.txt"))
	if err != nil || strings.Contains(string(env), "secret") || !strings.Contains(string(env), "FOR_BUILD=passed") {
		t.Errorf("the variables of a command: %s %v", env, err)
	}
	if text, err := os.ReadFile(p.path("sub/folder/copy")); err != nil || string(text) != "data" {
		t.Errorf("%q %v", text, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	connect := `python3 -c "import socket; socket.create_connection(('127.0.0.1', ` +
		l.Addr().String()[len("127.0.0.1:"):] + `))"`
	for line, want := range map[string]string{
		"exit 3":                         "setup: exit 3: sh: exit status 3",
		"echo one; echo two >&2; false":  "exit status 1:\n  ",
		"echo x >" + outside:             "ermission denied",
		"echo x >" + outside + "2":       "ermission denied",
		"echo x >../beside":              "ermission denied",
		"cat " + outside:                 "ermission denied",
		"cat /proc/$PPID/environ":        "exit status 1", // root sees no other processes
		"cat ../.repo/.millrace/app.env": "ermission denied",
		connect:                          "--allow-network",
	} {
		p.setup(line)
		p.refuses("setup: ", want)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "private" {
		t.Errorf("%q %v", text, err)
	}
	p.o.Network = true
	p.setup(connect)
	p.build()
	p.o.Limit = 300 * time.Millisecond
	p.setup("echo waits; sleep 1000")
	p.refuses("takes longer than 300ms", "raise --build-timeout", "waits")
}

// TestBuildsAtOnce: one build at a time works on an application; a build that ends by its context ends the lock.
func TestBuildsAtOnce(t *testing.T) {
	p := newPlace(t, nil)
	p.setup("echo started; sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan struct{}), make(chan error)
	o := p.o
	o.OnLine = func(step, line string) {
		if line == "started" {
			close(started)
		}
	}
	needs := *p.needs
	go func() {
		_, err := Build(ctx, p.app, &needs, o)
		ended <- err
	}()
	<-started
	p.setup("true")
	p.refuses("another build of app is running: wait for its end")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	p.build()
}

// TestSystemPackages: nothing is installed without the permission.
func TestSystemPackages(t *testing.T) {
	testneeds.Program(t, "dpkg-query")
	p := newPlace(t, nil)
	p.needs.System = []string{"dpkg", "no-such-package-1", "no-such-package-2"}
	p.refuses("needs the system packages no-such-package-1, no-such-package-2", "--allow-system-packages",
		"apt-get install -y --no-install-recommends no-such-package-1 no-such-package-2")
	p.needs.System = []string{"dpkg", "-o=x"}
	p.refuses(`"-o=x" is no name of a Debian package`)
	p.o.SystemInstall = true
	for _, name := range []string{"no-such-package-1-", "a."} {
		p.needs.System = []string{name}
		p.refuses(name + `" is no name of a Debian package`)
	}
	for _, name := range []string{"dpkg+", "dpk.g", "no-such-package-1"} { // for apt-get, + and . are no part of a name
		p.needs.System = []string{name}
		p.refuses("apt knows not all packages of " + name)
	}
	if err := CheckSystem([]string{"g++", "libstdc++6", "libgtk2.0-0"}); err != nil {
		t.Error(err)
	}
	p.needs.System = []string{"dpkg"}
	p.build()
}

// TestDigest: the digest follows all that determines the packages.
func TestDigest(t *testing.T) {
	p := newPlace(t, map[string]string{
		"requirements.txt": "one # comment\n-r more/base.txt\n./lib\n--index-url https://x.test/simple\n",
		"more/base.txt":    "-c ../constraints.txt\ntwo.three==1\nfour @ https://x.test/four.whl\ngit+https://x.test/r\n",
		"constraints.txt":  "two<2\n", "lib/pyproject.toml": "[project]\n", "lib/lib.py": "x", "app.py": "x",
	})
	sum := func() string {
		t.Helper()
		s, local, err := digest(p.app.Root, p.app.Root, p.needs.Requirements, []string{"five"})
		if err != nil || !local {
			t.Fatal(local, err)
		}
		return s
	}
	seen := []string{sum()}
	p.write("app.py", "y")
	if sum() != seen[0] {
		t.Error("the digest follows files that are no requirements")
	}
	for _, name := range []string{"requirements.txt", "more/base.txt", "constraints.txt", "lib/lib.py"} {
		text, err := os.ReadFile(p.path(name))
		if err != nil {
			t.Fatal(err)
		}
		p.write(name, string(text)+"\n# more\n")
		if s := sum(); slices.Contains(seen, s) {
			t.Errorf("the digest does not follow %s", name)
		} else {
			seen = append(seen, s)
		}
	}
	for text, want := range map[string]string{
		"-r ../../outside.txt": "is outside of the application", "-r missing.txt": "no such file",
		"-e ../other": "is outside of the application",
	} {
		if err := os.MkdirAll(filepath.Join(p.o.Dir, "other"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p.o.Dir, "outside.txt"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p.write("more/requirements.txt", text)
		_, _, err := digest(p.app.Root, p.app.Root, []string{p.path("more/requirements.txt")}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestDigestMoves: the digest is the same wherever the folder of the configuration file is.
func TestDigestMoves(t *testing.T) {
	files := map[string]string{"service/requirements.txt": "-r ../more.txt\n./lib\n", "more.txt": "one\n",
		"service/lib/lib.py": "x", "plain/requirements.txt": "-r more.txt\n./lib\n", "plain/more.txt": "one\n",
		"plain/lib/lib.py": "x"}
	p, other := newPlace(t, files), newPlace(t, files)
	sum := func(root, dir string) string {
		t.Helper()
		s, _, err := digest(root, dir, []string{filepath.Join(dir, "requirements.txt")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if sum(p.app.Root, p.path("service")) != sum(other.app.Root, other.path("service")) {
		t.Error("the digest follows the folder of a clone")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(p.path("plain"), link); err != nil {
		t.Fatal(err)
	}
	in := sum(p.app.Root, p.path("plain"))
	if in != sum(p.path("plain"), p.path("plain")) || in != sum(link, link) {
		t.Error("the digest in a clone differs from the digest of the folder alone")
	}
}

// TestLockedArchive: a lock file names an archive of the application by the path from its own folder.
func TestLockedArchive(t *testing.T) {
	for address, want := range map[string]string{
		"file:///srv/my%20app/wheels/a.whl":  "file:wheels/a.whl",
		"file:///srv/my%20app/w%20x/a.whl":   "file:w%20x/a.whl",
		"file:///srv/wheels/a.whl":           "file:../wheels/a.whl",
		"https://x.test/a.whl":               "https://x.test/a.whl",
		"git+https://x.test/r@0123#egg=name": "git+https://x.test/r@0123#egg=name",
		"":                                   "",
	} {
		got := fromFolder("/srv/my app", address)
		if got != want || inFolder("/srv/my app", got) != address {
			t.Errorf("%s: %s, and back %s", address, got, inFolder("/srv/my app", got))
		}
	}
}

// TestLockMoves: a lock file of one clone serves another clone and another installer, also with an archive in the
// application.
func TestLockMoves(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	t.Run("to uv", func(t *testing.T) { testLockMoves(t, (*place).pip, (*place).uv) })
	t.Run("to pip", func(t *testing.T) { testLockMoves(t, (*place).uv, (*place).pip) })
}

func testLockMoves(t *testing.T, writes, reads func(*place)) {
	python := testneeds.Python(t, "ensurepip")
	wheels := t.TempDir()
	wheeltest.Wheel{Name: "greeting", Version: "1.0", Files: map[string]string{"greeting.py": "X = 1\n"}}.Write(t, wheels)
	names, err := filepath.Glob(filepath.Join(wheels, "*.whl"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	wheel, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"requirements.txt": "./my wheels/" + filepath.Base(names[0]) + "\n",
		"my wheels/" + filepath.Base(names[0]): string(wheel)}
	first := newPlace(t, files)
	first.o.Python = python
	writes(first)
	env := first.build().Environment
	if _, err := WriteLock(first.app, env); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(first.path("millrace.lock"))
	if err != nil || strings.Contains(string(text), first.o.Dir) {
		t.Errorf("the lock file has the path of the clone: %s %v", text, err)
	}
	if again := first.build(); again.Made {
		t.Errorf("the locked packages are installed again: %+v", again.Environment)
	}
	if err := os.RemoveAll(first.o.Dir); err != nil {
		t.Fatal(err)
	}
	files["millrace.lock"] = string(text)
	second := newPlace(t, files)
	second.o.Python = python
	reads(second)
	if r := second.build(); !r.Made || len(r.Environment.Packages) != 1 ||
		r.Environment.Packages[0].Name != "greeting" || r.Environment.Packages[0].Version != "1.0" {
		t.Errorf("%+v", r.Environment)
	}
}

// TestLocalPackages: the digest follows packages of the application in all notations, and an installer reads more of
// the application only for such packages.
func TestLocalPackages(t *testing.T) {
	p := newPlace(t, map[string]string{"keys.yaml": "secret", "my lib/a.py": "x", "lib/src/build/a.py": "x",
		"lib/build/lib/a.py": "x", "lib/a.egg-info/PKG-INFO": "x", "wheels/a.whl": "x", "more files.txt": "x\n"})
	for line, follows := range map[string]string{
		`./my lib ; python_version > "3"`:                  "my lib/a.py",
		`-e "./my lib"`:                                    "my lib/a.py",
		`-e ./my\ lib`:                                     "my lib/a.py",
		"my-lib @ file://" + p.path("my%20lib"):            "my lib/a.py",
		"./lib[extra]  # a comment":                        "lib/src/build/a.py",
		"./lib --config-settings=a=b":                      "lib/src/build/a.py",
		"--find-links wheels\na":                           "wheels/a.whl",
		"-f 'wheels'\na":                                   "wheels/a.whl",
		"-f " + p.path("wheels") + "\na":                   "wheels/a.whl",
		`-r "more files.txt"`:                              "more files.txt",
		"./lib\n# same for all: no lib/build, no egg-info": "lib/src/build/a.py",
	} {
		p.write("requirements.txt", line+"\n")
		look := func() *requirements {
			t.Helper()
			r, err := inspect(p.app.Root, p.app.Root, []string{p.path("requirements.txt")}, nil)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return r
		}
		before := look()
		whole := slices.Contains(before.reads(), p.app.Root)
		if before.local != strings.Contains(line, "lib") || before.local != whole {
			t.Errorf("%s: %v, an installer reads %q", line, before.local, before.reads())
		}
		p.write("lib/build/lib/a.py", line)
		p.write("lib/a.egg-info/PKG-INFO", line)
		if look().sum() != before.sum() {
			t.Errorf("%s: the digest follows what a build writes", line)
		}
		p.write(follows, line)
		if look().sum() == before.sum() {
			t.Errorf("%s: the digest does not follow %s", line, follows)
		}
		p.write(follows, "x")
	}
}

// TestLockFile: a lock file has packages with hashes, and nothing that an installer reads as an option.
func TestLockFile(t *testing.T) {
	hash := "sha256:" + strings.Repeat("0a", 32)
	file := filepath.Join(t.TempDir(), "millrace.lock")
	for text, want := range map[string]string{
		`{"version": 1, "packages": [{"name": "a", "version": "1.0", "hashes": ["` + hash + `"]}]}`:             "",
		`{"version": 1, "packages": [{"name": "a", "version": "1.0", "hashes": []}]}`:                           "a: has no hash",
		`{"version": 1, "packages": [{"name": "-e", "version": "1.0", "hashes": ["` + hash + `"]}]}`:            "no name of a package",
		`{"version": 1, "packages": [{"name": "a", "version": "1 --index-url x", "hashes": ["` + hash + `"]}]}`: "no version",
		`{"version": 1, "packages": [{"name": "a", "url": "x -e .", "hashes": ["` + hash + `"]}]}`:              "no address",
		`{"version": 2}`:            "has version 2",
		`{"version": 1, "more": 2}`: `unknown field "more"`,
		`{`:                         "write the file anew by build lock",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readLock(file)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestOpenWithoutBuild: an application with requirements does not run without its packages.
func TestOpenWithoutBuild(t *testing.T) {
	p := newPlace(t, nil)
	if env, _, err := Open(p.app, p.needs, p.o.Dir); env != nil || err != nil {
		t.Errorf("without requirements: %+v %v", env, err)
	}
	for _, needs := range []*apps.Needs{{Packages: []string{"greeting"}},
		{Requirements: []string{p.path("requirements.txt")}}} {
		_, _, err := Open(p.app, needs, p.o.Dir)
		if err == nil || !strings.Contains(err.Error(), "packages of app are not installed in "+p.o.Dir) {
			t.Errorf("%+v: %v", needs, err)
		}
	}
}

// TestNoCache: an installer writes in the environment alone. A cache would carry packages from one build to another.
func TestNoCache(t *testing.T) {
	p := newPlace(t, nil)
	base := filepath.Join(p.o.Dir, "base")
	j := &job{Options: p.o, app: p.app, base: base, dir: p.app.Root, tool: tool{name: "uv"}}
	path := filepath.Join(base, "environment")
	program := j.program("packages", path, "true")
	if !slices.Equal(program.Write, []string{path}) {
		t.Errorf("an installer writes in %q", program.Write)
	}
	for _, v := range []string{"PIP_NO_CACHE_DIR=1", "UV_NO_CACHE=1"} {
		if !slices.Contains(program.Env, v) {
			t.Errorf("no %s in %q", v, program.Env)
		}
	}
}

// TestEnvironment makes an environment from a folder of wheels, and follows the requirements.
func TestEnvironment(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages several times")
	}
	t.Run("pip", func(t *testing.T) { testEnvironment(t, (*place).pip, "DO NOT MATCH THE HASHES") })
	t.Run("uv", func(t *testing.T) { testEnvironment(t, (*place).uv, "Hash mismatch for `deep-thing==2.1`") })
}

// testEnvironment is TestEnvironment with an installer, which reports a wrong hash by the text mismatch.
func testEnvironment(t *testing.T, installer func(*place), mismatch string) {
	const shadow = "raise SystemExit('a module of the application in place of Python\\'s')\n"
	p := newPlace(t, map[string]string{"requirements.txt": "greeting\n", "venv.py": shadow, "pip.py": shadow,
		"ensurepip.py": shadow})
	p.o.Python = testneeds.Python(t, "ensurepip")
	installer(p)
	p.wheels()
	p.setup(`python3 -c "import greeting, deep_thing; print(greeting.WORD, deep_thing.X)" >out.txt`)
	r := p.build()
	if !r.Made || len(r.Environment.Packages) != 2 || r.Environment.Packages[0].Version != "2.1" ||
		len(r.Environment.Packages[1].Hashes) != 1 {
		t.Fatalf("%+v", r.Environment)
	}
	if text, err := os.ReadFile(p.path("out.txt")); err != nil || string(text) != "Hello 2.1\n" {
		t.Errorf("%q %v", text, err)
	}
	if again := p.build(); again.Made || again.Environment.Path != r.Environment.Path {
		t.Errorf("the second build: %+v", again)
	}
	env, release, err := Open(p.app, p.needs, p.o.Dir)
	if err != nil || env.Path != r.Environment.Path {
		t.Fatalf("%+v %v", env, err)
	}
	p.o.Rebuild = true
	p.refuses("a server uses the environment")
	p.o.Rebuild = false

	lock, err := WriteLock(p.app, env)
	if err != nil || len(lock.Packages) != 2 {
		t.Fatalf("%+v %v", lock, err)
	}
	stale := func(why string) {
		t.Helper()
		if _, _, err := Open(p.app, p.needs, p.o.Dir); err == nil ||
			!strings.Contains(err.Error(), "have changed since the last build: add the command build") {
			t.Errorf("%s: %v", why, err)
		}
	}
	stale("a lock file that is new since the build")
	three := map[string]string{"deep_thing.py": "X = 3.0\n"}
	wheeltest.Wheel{Name: "deep_thing", Version: "3.0", Files: three}.Write(t, p.o.Wheels)
	if same := p.build(); same.Made || same.Environment.Path != env.Path {
		t.Errorf("an environment with the locked packages is made again: %+v", same)
	}
	p.o.Rebuild = true
	locked := p.build()
	if !locked.Made || locked.Environment.Packages[0].Version != "2.1" {
		t.Errorf("by the lock file: %+v", locked.Environment)
	}
	if len(p.environments()) != 2 { // the one in use, and the new one
		t.Errorf("%q", p.environments())
	}
	p.o.Rebuild = false
	if same := p.build(); same.Made {
		t.Errorf("an environment with the locked packages is made again: %+v", same)
	}
	release()
	p.o.Rebuild = true
	wheeltest.Wheel{Name: "deep_thing", Version: "2.1", Files: map[string]string{"evil.py": ""}}.Write(t, p.o.Wheels)
	p.refuses("the packages of "+p.path("millrace.lock")+" cannot be installed", mismatch, "build lock")
	p.write("requirements.txt", "greeting==1.0\n")
	p.refuses("the requirements have changed since " + p.path("millrace.lock") + " was written")
	stale("other requirements than at the build")
	p.o.Relock, p.o.Rebuild = true, false
	for range 2 {
		if again := p.build(); !again.Made || again.Environment.Packages[0].Version != "3.0" {
			t.Errorf("without the lock file: %+v", again)
		}
	}
	stale("a lock file that the build did not use")
	if lock, err := Relock(p.app, p.needs, p.o.Dir); err != nil || len(lock.Packages) != 2 {
		t.Fatalf("%+v %v", lock, err)
	}
	if _, release, err = Open(p.app, p.needs, p.o.Dir); err != nil {
		t.Fatalf("after lock: %v", err)
	}
	release()
	if len(p.environments()) != 1 {
		t.Errorf("environments of earlier builds are left: %q", p.environments())
	}
	p.write("requirements.txt", "greeting\nmissing-thing\n")
	p.refuses("the requirements of requirements.txt cannot be installed from "+p.o.Wheels, "missing-thing")
	if len(p.environments()) != 1 {
		t.Errorf("a build that failed left %q", p.environments())
	}
}

// TestProject installs the dependencies of a pyproject.toml, with the packages of the system.
func TestProject(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	p := newPlace(t, map[string]string{"pyproject.toml": "[project]\nname = 'x'\nversion = '1'\n" +
		"dependencies = ['deep-thing<2.1', 'numpy']\n"})
	p.o.Python = testneeds.Python(t, "ensurepip", "numpy")
	p.wheels()
	p.o.SystemSite = true
	p.setup(`python3 -c "import numpy, deep_thing; print(deep_thing.X)" >out.txt`)
	if r := p.build(); len(r.Environment.Packages) != 1 || r.Environment.Packages[0].Version != "2.0" {
		t.Errorf("%+v", r.Environment)
	}
	if text, err := os.ReadFile(p.path("out.txt")); err != nil || string(text) != "2.0\n" {
		t.Errorf("%q %v", text, err)
	}
	p.write("pyproject.toml", "[project]\nname = 'x'\nversion = '1'\ndynamic = ['dependencies']\n")
	p.refuses("pyproject.toml", "project.dependencies is dynamic: write the packages into requirements.txt")
	p.write("pyproject.toml", "[tool.black]\n")
	if found := Found(p.app.Root); len(found) != 0 {
		t.Errorf("settings of tools are requirements: %q", found)
	}
}

// A failure without an index names the requirements files, and what to do.
func TestIndexHint(t *testing.T) {
	j := &job{app: &apps.App{Root: "/a"}, needs: &apps.Needs{Requirements: []string{"/a/requirements.txt",
		"/a/tests/requirements.txt"}}}
	err := j.explain(errors.New("ERROR: No matching distribution found for six"))
	want := "the requirements of requirements.txt and tests/requirements.txt cannot be installed: ERROR: No matching " +
		"distribution found for six\n(without an index: --wheels FOLDER; another index: --pass PIP_INDEX_URL)"
	if err.Error() != want {
		t.Errorf("%v", err)
	}
	if err := j.explain(errors.New("exit status 2")); strings.Contains(err.Error(), "--wheels") {
		t.Errorf("another failure: %v", err)
	}
	j.Wheels = "/w"
	if err := j.explain(errors.New("ERROR: No matching distribution found for six")); strings.Contains(err.Error(),
		"--pass") {
		t.Errorf("with wheels: %v", err)
	}
}
