package deploy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/apps/image"
	"millrace/internal/gittest"
	"millrace/internal/sshclient"
	"millrace/internal/testneeds"
)

// options returns the options of a deploy to a host, with the folder of the application there.
func options(t *testing.T, s *gittest.SSH) Options {
	t.Helper()
	key, err := sshclient.ParseKey("test", s.Key)
	if err != nil {
		t.Fatal(err)
	}
	return Options{Name: "plain", Folder: filepath.Join(t.TempDir(), "apps"), With: Podman,
		SSH: sshclient.Options{Keys: []sshclient.Key{key}, KnownHosts: []string{s.KnownHosts}}}
}

func target(s *gittest.SSH) Target { return Target{User: s.User, Host: "127.0.0.1", Port: s.Port} }

func blob(text string) image.Blob {
	sum := sha256.Sum256([]byte(text))
	return image.Blob{Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(text)),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

// contents returns an image that no host runs.
func contents(layer string) *image.Contents {
	return &image.Contents{Manifest: blob("{}"), Config: blob("{ }"), Layers: []image.Blob{blob(layer)},
		Architecture: runtime.GOARCH, Arguments: []string{"serve", "--http", "0.0.0.0:8000", "--grpc", "0.0.0.0:8001"}}
}

// opened opens the application on the host, locked.
func opened(t *testing.T, s *gittest.SSH, o Options) *site {
	t.Helper()
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	at, err := open(t.Context(), target(s), &o, "ann on here")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(at.close)
	return at
}

func TestParseTargets(t *testing.T) {
	for text, want := range map[string][]Target{
		"a":                   {{"", "a", "22"}},
		"me@a:2222, [::1]":    {{"me", "a", "2222"}, {"", "::1", "22"}},
		"me@[fe80::1]:23,::1": {{"me", "fe80::1", "23"}, {"", "::1", "22"}},
	} {
		if got, err := ParseTargets(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a,", "a:0", "a:x", "a b", "-oProxyCommand=x", "u ser@a", "a,a", "a;b", "[a"} {
		if got, err := ParseTargets(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestArguments(t *testing.T) {
	got, err := arguments([]string{"serve", "--config", "/app/m.yaml", "--http", "0.0.0.0:8000", "--grpc", "off"},
		"127.0.0.1:9", "127.0.0.1:10")
	if want := "serve --config /app/m.yaml --http 127.0.0.1:9 --grpc 127.0.0.1:10"; err != nil ||
		strings.Join(got, " ") != want {
		t.Errorf("%q, %v", got, err)
	}
	got, err = arguments([]string{"ssf", "--config", "x", "--host", "0.0.0.0", "--port", "8000", "run"}, ":9", "off")
	if want := "ssf --config x --host 0.0.0.0 --port 9 run"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range [][2]string{{"9", "off"}, {"127.0.0.1:0", "off"}, {"127.0.0.1:9", "on"}} {
		if got, err := arguments([]string{"serve", "--http", "a", "--grpc", "b"}, bad[0], bad[1]); err == nil {
			t.Errorf("%q: %q", bad, got)
		}
	}
}

// A port in use is found by the address, for IPv4 and IPv6.
func TestCheckPorts(t *testing.T) {
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	if listens(string(text), "127.0.0.1:"+port) {
		t.Error("a port that was free is in use")
	}
	s := gittest.NewSSH(t)
	at := opened(t, s, options(t, s))
	for address, busy := range map[string]bool{"127.0.0.1:": true, "0.0.0.0:": true, ":": true, "127.0.0.2:": false} {
		err := at.checkPorts(&release{HTTP: address + port, GRPC: "off"})
		if (err != nil) != busy || busy && !strings.Contains(err.Error(), "--http") {
			t.Errorf("%s: %v", address, err)
		}
	}
	const v6 = "0: 00000000000000000000000001000000:1F40 00000000000000000000000000000000:0000 0A"
	if !listens(v6, "[::1]:8000") || listens(v6, "127.0.0.1:8000") || !listens(v6, "0.0.0.0:8000") {
		t.Error("IPv6")
	}
}

// Only one deploy at a time works on a host. The lock ends with the connection of a deploy that has died.
func TestLock(t *testing.T) {
	s := gittest.NewSSH(t)
	o := options(t, s)
	first := opened(t, s, o)
	o.Image = contents("x")
	err := Run(t.Context(), []Target{target(s)}, o, "bob on there", nil)
	if err == nil || !strings.Contains(err.Error(), target(s).String()+": another deploy of the application runs there, "+
		"by ann on here") {
		t.Errorf("a second deploy: %v", err)
	}
	_ = first.conn.Close() // as of a deploy that has died
	for {                  // until sshd has seen the end
		second, err := open(t.Context(), target(s), &o, "bob on there")
		if err == nil {
			second.close()
			break
		}
		if !strings.Contains(err.Error(), "another deploy") || t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// Files are copied once, a damaged file gets no name, and what no release uses is removed.
func TestCopy(t *testing.T) {
	s := gittest.NewSSH(t)
	o := options(t, s)
	o.Image = contents("first")
	at := opened(t, s, o)
	if n, err := at.copy(t.Context(), nil); err != nil || n != 5+2+3 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	at.o.Image = contents("second")
	if n, err := at.copy(t.Context(), nil); err != nil || n != 6 {
		t.Errorf("%d bytes, %v", n, err)
	}
	damaged := blob("third")
	damaged.Open = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("thirx")), nil }
	at.o.Image.Layers = []image.Blob{blob("whole"), damaged}
	if _, err := at.copy(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Error(err)
	}
	at.state.Releases = []release{{Number: 1, Layers: []string{blob("second").Digest}}}
	if err := at.sweep(); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(at.blobs())
	if err != nil || len(list) != 1 || "sha256:"+list[0].Name() != blob("second").Digest {
		t.Errorf("%v, %v", list, err)
	}
}

// Failures name the host, and what to do.
func TestFailures(t *testing.T) {
	s := gittest.NewSSH(t)
	fails := func(o Options, targets []Target, want ...string) {
		t.Helper()
		err := Run(t.Context(), targets, o, "ann", func(Result) { t.Error("a deploy succeeded") })
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%v: want %q", err, w)
			}
		}
	}
	o := options(t, s)
	o.Image = contents("x")
	host := []Target{target(s)}
	name := target(s).String()

	unknown := o
	unknown.SSH.KnownHosts = []string{filepath.Join(s.Dir, "none")}
	var failed []Result
	unknown.Failed = func(r Result) { failed = append(failed, r) }
	fails(unknown, append(host, Target{"", "later", "22"}), name+": the host 127.0.0.1:"+s.Port+" is unknown",
		": ssh-keyscan -p "+s.Port+" 127.0.0.1 >> "+s.Dir+"/none", "later is as before")
	if len(failed) != 2 || failed[0].Target != name || !strings.Contains(failed[0].Error, "is unknown") ||
		failed[0].NotTried || failed[1].Target != "later" || failed[1].Error != "" || !failed[1].NotTried {
		t.Errorf("%+v", failed)
	}
	unknown.SSH.KnownHosts = []string{filepath.Join(s.Dir, "missing", "known_hosts")}
	fails(unknown, host, ": mkdir -p -m 700 "+s.Dir+"/missing && ssh-keyscan -p "+s.Port+" 127.0.0.1 >> "+s.Dir+
		"/missing/known_hosts")
	none := o
	none.SSH.Keys = nil
	fails(none, host, name+": there is no key for SSH")
	other := o
	other.Image = contents("x")
	other.Image.Architecture = "s390x"
	fails(other, host, name+": the image is for s390x")
	service := o
	service.With = Systemd
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		fails(service, host, name+": systemd does not run there", "--with podman")
	}
	odd := o
	odd.Name = "a/b"
	fails(odd, host, `"a/b" is no name`)
	odd = o
	odd.Secrets = []Secret{{"A", []byte("1")}, {"A", []byte("2")}, {"B C", nil}}
	fails(odd, host, "the secret A is given twice", `"B C" is no name`)

	s.Configure("SetEnv PATH=" + without(t, "podman"))
	fails(o, host, name+": Podman is not there: install it", "--with systemd")
	s = gittest.NewSSH(t)
	s.Configure("SetEnv PATH=" + without(t, "flock"))
	fails(anotherHost(t, s, o), []Target{target(s)}, target(s).String(),
		"the host has no flock: install it")
	s = gittest.NewSSH(t)
	s.Configure("MaxSessions 1")
	fails(anotherHost(t, s, o), []Target{target(s)}, target(s).String(), "set MaxSessions to 4 or more")
	ended, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := ended.Addr().(*net.TCPAddr)
	_ = ended.Close()
	gone, _ := ParseTargets(at.String())
	fails(o, gone, at.String()+": no SSH server answers at "+at.String()+" (connection refused): compare --target")
	closes, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		if c, err := closes.Accept(); err == nil {
			_ = c.Close()
		}
	}()
	ends, _ := ParseTargets(closes.Addr().String())
	fails(o, ends, "the SSH server at "+closes.Addr().String()+" ended the connection: look at its log")
	_ = closes.Close()
	<-accepted
}

// A deploy without the flags of the last deploy says what that changes.
func TestChanges(t *testing.T) {
	before := &release{HTTP: "127.0.0.1:18951", GRPC: "off", Health: "127.0.0.1:18951",
		Podman: []string{"--memory=4g", "--cpus=2"}, Secrets: []string{"B", "A"}}
	same := *before
	same.Secrets = []string{"A", "B"}
	if got := changes(before, &same); got != nil {
		t.Errorf("%q", got)
	}
	got := changes(before, &release{HTTP: DefaultHTTP, GRPC: DefaultGRPC, Health: DefaultHTTP, Secrets: []string{"A"}})
	want := []string{"the address of HTTP was 127.0.0.1:18951, and is now 127.0.0.1:8000",
		"the address of gRPC was off, and is now 127.0.0.1:8001",
		"the options of Podman were --memory=4g --cpus=2, and are now none",
		"the names of the secrets were A B, and are now A"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	before.Source, same.Source = "file:///srv/a", "file:///srv/b"
	if got := changes(before, &same); len(got) != 1 ||
		got[0] != "the repository or folder was file:///srv/a, and is now file:///srv/b" {
		t.Errorf("%q", got)
	}
	before.Source = "" // of an older version
	before.Health = "https://models.example.org"
	if got := changes(before, &same); len(got) != 1 ||
		got[0] != "the address of the health check was https://models.example.org, and is now that of HTTP" {
		t.Errorf("%q", got)
	}
}

// Without systemd, the command that starts the application with the host is the same for all releases.
func TestBootWithoutSystemd(t *testing.T) {
	s := gittest.NewSSH(t)
	at := opened(t, s, options(t, s))
	at.systemd = false
	p := &podman{at}
	err := p.boot(&release{Number: 1}, nil)
	if err == nil {
		t.Fatal("the first release has no note")
	}
	_, command, _ := strings.Cut(err.Error(), "let the host run ")
	for number, before := range map[int]*release{2: {Number: 1}, 3: {Number: 2}} {
		if err := p.boot(&release{Number: number}, before); err != nil {
			t.Errorf("release %d: %v", number, err)
		}
		out, err := at.run(strings.Replace(command, "podman", "echo", 1))
		if want := "start millrace-plain-r" + strconv.Itoa(number); err != nil || out != want {
			t.Errorf("%s: %q, %v; want %q", command, out, err, want)
		}
	}
}

// anotherHost returns the options for another host.
func anotherHost(t *testing.T, s *gittest.SSH, o Options) Options {
	t.Helper()
	n := options(t, s)
	n.Image = o.Image
	return n
}

// without returns a folder with the programs of deploys, except one.
func without(t *testing.T, lacks string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"sh", "id", "uname", "cat", "mkdir", "flock", "timeout", "head", "tar", "gzip",
		"sha256sum", "podman", "cut", "mv", "rm", "ls", "wc", "rmdir", "find"} {
		if name == lacks {
			continue
		}
		for _, at := range []string{"/bin", "/usr/bin"} {
			if _, err := os.Stat(filepath.Join(at, name)); err == nil {
				_ = os.Symlink(filepath.Join(at, name), filepath.Join(dir, name))
			}
		}
	}
	return dir
}

// proxy is a connection to a host that a test can cut.
type proxy struct {
	ln    net.Listener
	mu    sync.Mutex
	conns []net.Conn
	all   sync.WaitGroup
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln}
	p.all.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			p.all.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
			p.all.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		p.cut()
		p.all.Wait()
	})
	return p
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
}

// knownAs returns a file with the host's key under the address of a proxy.
func (p *proxy) knownAs(s *gittest.SSH) (file string, at Target) {
	_, port, _ := net.SplitHostPort(p.ln.Addr().String())
	return s.Write("known_proxy", strings.Replace(s.HostLine(), ":"+s.Port, ":"+port, 1)),
		Target{User: s.User, Host: "127.0.0.1", Port: port}
}

// A command says that the connection was lost.
func TestLost(t *testing.T) {
	s := gittest.NewSSH(t)
	p := newProxy(t, "127.0.0.1:"+s.Port)
	o := options(t, s)
	var at Target
	o.SSH.KnownHosts = nil
	var file string
	file, at = p.knownAs(s)
	o.SSH.KnownHosts = []string{file}
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	opened, err := open(t.Context(), at, &o, "ann")
	if err != nil {
		t.Fatal(err)
	}
	defer opened.close()
	r, w := io.Pipe()
	go func() {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 10))
		p.cut()
		_ = w.Close()
	}()
	if _, err := opened.streamed(t.Context(), "cat", r); err == nil || !strings.Contains(err.Error(), at.String()+": the connection was "+
		"lost") {
		t.Error(err)
	}
}

// A full disk on a host: the error names the host, the folder and what to do, and once there is room, the next call
// works.
func TestFullDisk(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("make check runs the test, as root, with a small file system")
	}
	s := gittest.NewSSH(t)
	o := options(t, s)
	if err := os.Mkdir(o.Folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", o.Folder, "tmpfs", 0, "size=1m,mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(o.Folder, syscall.MNT_DETACH); err != nil { // the shell there may still end
			t.Error(err)
		}
	})
	fill := filepath.Join(o.Folder, "fill")
	free := func(n int) {
		t.Helper()
		_ = os.Remove(fill)
		f, err := os.Create(fill)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write(make([]byte, 2<<20))
		if n > 0 {
			err = f.Truncate((1 << 20) - int64(n))
		}
		if errors.Is(err, syscall.ENOSPC) {
			err = nil
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	o.Image = contents(strings.Repeat("x", 500<<10))
	full := func(err error) {
		t.Helper()
		for _, want := range []string{target(s).String() + ": ", "No space left on device", "make room there",
			o.Folder} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: want %q", err, want)
			}
		}
	}
	free(100 << 10)
	at := opened(t, s, o)
	_, err := at.copy(t.Context(), nil)
	full(err)
	if _, err := os.Stat(at.blobs() + "/part"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("parts are left: %v", err)
	}
	free(0)
	at.state.Releases = []release{{Number: 1, Podman: []string{strings.Repeat("x", 10<<10)}}}
	full(at.write())
	if list, err := filepath.Glob(o.Folder + "/*.new"); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
	at.close()
	at = opened(t, s, o) // the lock needs no room
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if n, err := at.copy(t.Context(), nil); err != nil || n < 500<<10 {
		t.Errorf("%d, %v", n, err)
	}
	if err := at.write(); err != nil {
		t.Error(err)
	}
}

// A host whose disk hangs does not hold a deploy up for ever.
func TestCopyHangs(t *testing.T) {
	s := gittest.NewSSH(t)
	dir := without(t, "tar")
	testneeds.WriteProgram(t, filepath.Join(dir, "tar"), "#!/bin/sh\nexec /bin/sleep 4\n")
	o := options(t, s)
	o.Image = contents(strings.Repeat("x", 8<<20)) // more than a connection holds
	at := opened(t, s, o)
	stallTime = time.Second
	defer func() { stallTime = commandTime }()
	s.Configure("SetEnv PATH=" + dir)
	slow := opened(t, s, anotherHost(t, s, o))
	if _, err := slow.copy(t.Context(), nil); !errors.As(err, new(lateError)) {
		t.Errorf("%v", err)
	}
	stallTime = commandTime // a busy machine may stop for a second
	if n, err := at.copy(t.Context(), nil); err != nil || n < 8<<20 {
		t.Errorf("%d, %v", n, err)
	}
}

// TestForeignFolder: a deploy and a removal leave a folder alone that other software uses under the names of ours.
func TestForeignFolder(t *testing.T) {
	s := gittest.NewSSH(t)
	o := options(t, s)
	kept := filepath.Join(o.Folder, "releases", "1", "index.html")
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Remove(t.Context(), []Target{target(s)}, o, "ann", true, func(Target, bool) {})
	if err == nil || !strings.Contains(err.Error(), "other software, such as releases") {
		t.Errorf("%v", err)
	}
	if files, err := os.ReadDir(o.Folder); err != nil || len(files) != 1 {
		t.Errorf("the folder has %v, %v", files, err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}

// TestLogsOfFailedRelease: the lines of a release that failed are below the message, with the indents of a traceback,
// and without codes for the terminal.
func TestLogsOfFailedRelease(t *testing.T) {
	s := gittest.NewSSH(t)
	dir := t.TempDir()
	testneeds.WriteProgram(t, filepath.Join(dir, "podman"), "#!/bin/sh\nprintf 'Traceback:\\n  File x\\033[1m\\n    y\\n'\n")
	s.Configure("SetEnv PATH=" + dir + ":/usr/sbin:/usr/bin:/sbin:/bin")
	at := opened(t, s, options(t, s))
	err := at.withLogs(&podman{at}, &release{Number: 1}, errors.New("it ended"))
	if want := "it ended. Its last lines:\n  Traceback:\n    File x[1m\n      y"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}
