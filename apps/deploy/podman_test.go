package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/apps/image"
	"millrace/internal/gittest"
	"millrace/internal/podmantest"
)

func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

const infer = `{"inputs":[{"name":"input","datatype":"FP32","shape":[1],"data":[2.5]}]}`

// ask sends a request that no client repeats by itself.
func ask(c *http.Client, address, model string) error {
	r, err := c.Post("http://"+address+"/v2/models/"+model+"/infer", "application/json", strings.NewReader(infer))
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err == nil && (r.StatusCode != http.StatusOK || !strings.Contains(string(body), "2.5")) {
		err = fmt.Errorf("%s: %s", r.Status, body)
	}
	return err
}

// load sends requests on kept and new connections until stop returns how many were sent and lost.
func load(address string) (stop func(atLeast int64) (sent, lost int64, first error)) {
	var sent, lost atomic.Int64
	var first atomic.Pointer[error]
	done := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 4 {
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: i%2 == 1}}
		clients.Go(func() {
			for {
				select {
				case <-done:
					c.CloseIdleConnections()
					return
				default:
				}
				if err := ask(c, address, "same"); err != nil {
					lost.Add(1)
					first.CompareAndSwap(nil, &err)
				}
				sent.Add(1)
				time.Sleep(time.Millisecond) // leaves processors to the deploy
			}
		})
	}
	return func(atLeast int64) (int64, int64, error) {
		for sent.Load() < atLeast && lost.Load() == 0 {
			time.Sleep(time.Millisecond) // the clients are busy meanwhile
		}
		close(done)
		clients.Wait()
		var err error
		if p := first.Load(); p != nil {
			err = *p
		}
		return sent.Load(), lost.Load(), err
	}
}

const secret = "a-secret-of-the-deploy-test"

// podmanHost is a host with Podman.
type podmanHost struct {
	*podmantest.Service
	*gittest.SSH
	t *testing.T
	o Options
}

func (h *podmanHost) deploy(c *image.Contents) (Result, error) {
	h.t.Helper()
	h.o.Image = c
	var got Result
	err := Run(h.t.Context(), []Target{target(h.SSH)}, h.o, "ann", func(r Result) { got = r })
	return got, err
}

func (h *podmanHost) mustDeploy(c *image.Contents) Result {
	h.t.Helper()
	r, err := h.deploy(c)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

func (h *podmanHost) podman(args ...string) string {
	h.t.Helper()
	out, err := h.Do(args...)
	if err != nil {
		h.t.Fatalf("podman %v: %v: %s", args, err, out)
	}
	return out
}

// A host with Podman gets releases over SSH: no request is lost in a switch, a release that does not start is rolled
// back, a deploy that died is finished or undone, three releases are kept, secrets are nowhere but in Podman's storage
// and in the application. Remove, and a first release that does not start, leave nothing but data of earlier releases.
func TestPodman(t *testing.T) {
	service := podmantest.Start(t)
	s := gittest.NewSSH(t)
	s.Configure("SetEnv PATH=" + service.Program() + ":/usr/sbin:/usr/bin:/sbin:/bin")
	h := &podmanHost{service, s, t, options(t, s)}
	h.o.HTTP, h.o.GRPC, h.o.Secrets = freePort(t), "off", []Secret{{"GREETING", []byte(secret)}}
	first, broken := packed(t), repack(t, brokenModels)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		err := Remove(ctx, []Target{target(s)}, h.o, "ann", true, func(Target, bool) {})
		if t.Failed() {
			t.Log(err)
		} else if err == nil || !strings.Contains(err.Error(), "there was no application plain") {
			t.Errorf("after the last removal: %v", err)
		}
	})

	failsFirst := func() {
		t.Helper()
		_, err := h.deploy(broken)
		if err == nil || !strings.Contains(err.Error(), "the release was removed, and no other release is there") {
			t.Errorf("a broken first release: %v", err)
		}
	}
	failsFirst()
	h.hasNothing("a broken first release", "")

	r := h.mustDeploy(first)
	t.Logf("first: %+v", r)
	if r.Release != 1 || r.Previous != 0 || r.Copied < 10<<20 || len(r.Notes) > 1 {
		t.Errorf("%+v", r)
	}
	h.checkSecrets()

	changed := repack(t, sameModels+"# changed\n")
	stop := load(h.o.HTTP)
	r = h.mustDeploy(changed)
	sent, lost, err := stop(10_000)
	t.Logf("second: %+v; %d requests, %d lost", r, sent, lost)
	if lost > 0 {
		t.Errorf("%d of %d requests were lost: %v", lost, sent, err)
	}
	if r.Release != 2 || r.Previous != 1 || r.Copied > 100<<10 {
		t.Errorf("%+v", r)
	}

	_, err = h.deploy(broken)
	for _, want := range []string{target(s).String() + ": release 3: it ", "none-such",
		"the release was removed, and release 2 serves"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a broken release: %v; want %q", err, want)
		}
	}
	h.serves("r2", "r1")

	// The connection ends at different points of a deploy: the next deploy undoes or finishes the deploy.
	for _, at := range []struct{ say, note string }{{"installs release", "was undone"},
		{"starts release", "was undone"}, {"waits for release", ""}, {"removes old", "none"}, {"copies", "none"}} {
		c := first
		if at.say == "copies" {
			c = repack(t, sameModels+"# "+strings.Repeat("long ", 1000))
		}
		idle := &http.Client{Transport: &http.Transport{}} // the old release waits for its connection to close
		if err := ask(idle, h.o.HTTP, "same"); err != nil {
			t.Error(err)
		}
		h.interrupt(c, at.say)
		stop := load(h.o.HTTP)
		r = h.mustDeploy(changed)
		if _, lost, err := stop(100); lost > 0 {
			t.Errorf("%d requests were lost: %v", lost, err)
		}
		if slices.ContainsFunc(r.Notes, func(n string) bool {
			return strings.Contains(n, "an earlier deploy, which did not end, ") && strings.Contains(n, at.note)
		}) == (at.note == "none") {
			t.Errorf("%s: %+v", at.say, r)
		}
		t.Logf("%s: %+v", at.say, r)
	}
	if again := h.mustDeploy(changed); !again.Unchanged || again.Release != r.Release || again.Copied != 0 {
		t.Errorf("an unchanged image: %+v", again)
	}
	h.stopFirst(changed, broken)
	h.follow()
	at := opened(t, s, h.o)
	var numbers []int
	for _, r := range at.state.Releases {
		numbers = append(numbers, r.Number)
	}
	if len(numbers) != Kept || at.state.Current != numbers[Kept-1] || at.state.Starting != 0 {
		t.Errorf("releases %v, current %d", numbers, at.state.Current)
	}
	at.close()
	blobs, err := os.ReadDir(at.blobs())
	if err != nil || len(blobs) != 2+3*2 { // two layers below the application, and two images
		t.Errorf("%d files of images, %v", len(blobs), err)
	}
	if n := len(strings.Fields(h.podman("images", "--format", "{{.Repository}}:{{.Tag}}"))); n != Kept {
		t.Errorf("%d images", n)
	}
	if n := len(strings.Fields(h.podman("secret", "ls", "--quiet"))); n != Kept {
		t.Errorf("%d secrets", n)
	}

	var log bytes.Buffer
	err = Logs(t.Context(), []Target{target(s)}, h.o, 5, false, func(Target) io.Writer { return &log })
	if err != nil || !strings.Contains(log.String(), "millrace is ready: http://"+h.o.HTTP) {
		t.Errorf("logs: %v, %s", err, &log)
	}
	other := h.o
	other.Name, other.Folder, other.Image = "other", filepath.Join(t.TempDir(), "apps"), first
	err = Run(t.Context(), []Target{target(s)}, other, "ann", func(Result) {})
	if err == nil || !strings.Contains(err.Error(), "another program listens at "+h.o.HTTP) {
		t.Errorf("a port in use: %v", err)
	}
	if _, err := os.Stat(other.Folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a first release that failed leaves its folder: %v", err)
	}
	moved := h.o
	moved.Folder, moved.Image = filepath.Join(t.TempDir(), "apps"), first
	err = Run(t.Context(), []Target{target(s)}, moved, "ann", func(Result) {})
	if err == nil || !strings.Contains(err.Error(), "of a deploy with another folder than "+moved.Folder) {
		t.Errorf("another folder: %v", err)
	}
	remove := func(data bool) {
		t.Helper()
		if err := Remove(t.Context(), []Target{target(s)}, h.o, "ann", data, func(Target, bool) {}); err != nil {
			t.Fatal(err)
		}
	}
	remove(false)
	failsFirst()
	h.hasNothing("a broken release beside data", "millrace-plain")
	remove(true)
	h.hasNothing("remove", "")
}

// hasNothing checks that the host has nothing of the application but a volume, if any.
func (h *podmanHost) hasNothing(after, volume string) {
	h.t.Helper()
	for _, args := range [][]string{{"ps", "--all", "--quiet"}, {"images", "--quiet"}, {"secret", "ls", "--quiet"},
		{"volume", "ls", "--quiet"}} {
		want := ""
		if args[0] == "volume" {
			want = volume
		}
		if out := h.podman(args...); out != want {
			h.t.Errorf("podman %v prints %q after %s, want %q", args, out, after, want)
		}
	}
	if _, err := os.Stat(h.o.Folder); !errors.Is(err, os.ErrNotExist) {
		h.t.Errorf("the folder is left after %s: %v", after, err)
	}
}

// serves checks which containers run, and which are stopped.
func (h *podmanHost) serves(runs string, stopped ...string) {
	h.t.Helper()
	if err := ask(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, h.o.HTTP, "same"); err != nil {
		h.t.Error(err)
	}
	want := "millrace-plain-" + runs
	if got := h.podman("ps", "--format", "{{.Names}}"); got != want {
		h.t.Errorf("containers %q run, want %s", got, want)
	}
	for _, r := range stopped {
		want += "\nmillrace-plain-" + r
	}
	if got := strings.Fields(h.podman("ps", "--all", "--format", "{{.Names}}")); len(got) != 1+len(stopped) {
		h.t.Errorf("containers %q, want %s", got, want)
	}
}

// checkSecrets looks for the secret where other users could read the secret.
func (h *podmanHost) checkSecrets() {
	h.t.Helper()
	text := h.podman("inspect", "--format", "{{.State.Pid}}", "millrace-plain-r1")
	pid, err := strconv.Atoi(text)
	if err != nil {
		h.t.Fatal(err)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !strings.Contains(string(env), "GREETING="+secret+"\x00") {
		h.t.Errorf("the application does not have the secret: %v", err)
	}
	if strings.Contains(h.podman("inspect", "--format", "{{.Config.CreateCommand}}", "millrace-plain-r1"), secret) {
		h.t.Error("the arguments of Podman have the secret")
	}
	err = filepath.WalkDir(h.o.Folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.Contains(path, "/blobs/") {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(secret)) {
			h.t.Errorf("%s has the secret", path)
		}
		return err
	})
	if err != nil {
		h.t.Error(err)
	}
}

// interrupt runs a deploy whose connection ends when the deploy says words.
func (h *podmanHost) interrupt(c *image.Contents, words string) {
	h.t.Helper()
	p := newProxy(h.t, "127.0.0.1:"+h.Port)
	file, at := p.knownAs(h.SSH)
	o := h.o
	o.Image, o.SSH.KnownHosts = c, []string{file}
	o.Progress = func(_, text string) {
		if strings.Contains(text, words) {
			p.cut()
		}
	}
	err := Run(h.t.Context(), []Target{at}, o, "ann", func(Result) {})
	if !errors.Is(err, errLost) && (err != nil || words != "removes old") {
		h.t.Errorf("%s: %v", words, err)
	}
}

// stopFirst checks releases that start after the end of the old one: a release that does not start makes the old one
// serve again. A changed secret makes a release of an unchanged image.
func (h *podmanHost) stopFirst(c, broken *image.Contents) {
	h.t.Helper()
	var said []string
	defer func(o Options) { h.o.StopFirst, h.o.Progress = false, nil }(h.o)
	h.o.StopFirst, h.o.Progress = true, func(_, text string) { said = append(said, text) }
	h.o.Secrets = []Secret{{"GREETING", []byte("another-secret")}}
	r := h.mustDeploy(c)
	stops := slices.Index(said, fmt.Sprintf("stops release %d", r.Previous))
	starts := slices.Index(said, fmt.Sprintf("starts release %d", r.Release))
	if r.Unchanged || stops < 0 || starts < stops {
		h.t.Errorf("%+v: %q", r, said)
	}
	want := fmt.Sprintf("the release was removed, and release %d serves", r.Release)
	if _, err := h.deploy(broken); err == nil || !strings.Contains(err.Error(), want) {
		h.t.Errorf("a broken release: %v", err)
	}
	if err := ask(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, h.o.HTTP, "same"); err != nil {
		h.t.Error(err)
	}
}

// text is an output that a test waits for.
type text struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *text) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *text) await(t *testing.T, words string) {
	t.Helper()
	for {
		w.mu.Lock()
		has := strings.Contains(w.text.String(), words)
		w.mu.Unlock()
		if has {
			return
		}
		if t.Context().Err() != nil {
			t.Fatalf("no %q", words)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// follow checks that a log is followed, and that nothing is left on the host afterwards.
func (h *podmanHost) follow() {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	var out text
	ended := make(chan error)
	go func() {
		ended <- Logs(ctx, []Target{target(h.SSH)}, h.o, 1, true, func(Target) io.Writer { return &out })
	}()
	out.await(h.t, "\n")
	h.podman("kill", "--signal", "HUP", h.podman("ps", "--quiet"))
	out.await(h.t, "was read again")
	cancel()
	if err := <-ended; err != nil {
		h.t.Error(err)
	}
	for {
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			h.t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(name string) bool {
			line, _ := os.ReadFile(name)
			return bytes.Contains(line, []byte("\x00--follow\x00millrace-plain-r")) &&
				bytes.Contains(line, []byte(filepath.Dir(h.Socket)))
		}) {
			return
		}
		if h.t.Context().Err() != nil {
			h.t.Fatal("podman logs is left on the host")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
