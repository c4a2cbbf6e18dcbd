//go:build linux

package frames_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/testbuild"
	"millrace/internal/testneeds"
	"millrace/internal/video/videotest"
)

// killPatience is the timeout of every wait; a passing run stays far below.
const killPatience = 2 * time.Minute

// TestKilledServerLeavesNoChildren kills the built program by SIGKILL while the program watches sources of every
// kind: ffmpeg, ffprobe and the programs of exec sources end without help. Before the kill, no log, answer or metric
// contained a password.
func TestKilledServerLeavesNoChildren(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a camera of every kind")
	}
	dir := t.TempDir()
	build(t, "ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10:duration=1",
		"-pix_fmt", "yuv420p", filepath.Join(dir, "clip.mp4"))
	camera := newFlapping(t)
	var delivered atomic.Int64
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		delivered.Add(1)
	}))
	defer hook.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // accepts by its backlog, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }()
	feed := "ffmpeg -nostdin -v error -re -f lavfi -i testsrc2=size=64x48:rate=10 -c:v mjpeg -f mpjpeg -"
	// Names, sources, and how many processes each has at least.
	cases := []struct {
		name, source string
		processes    int
	}{
		{"camera", strings.Replace(camera.URL, "://", "://me:geheim@", 1) + "?token=geheim", 1},
		{"loop", "clip.mp4", 1},
		{"exec", "exec:" + feed, 2},
		// no kernel signal reaches the shell's child
		{"shell", "exec:sh -c '" + feed + "; true'", 3},
		// ffmpeg starts when the server has answered
		{"mute", "http://me:geheim@" + mute.Addr().String() + "/x.mjpg", 0},
		{"rtsp", rtspAddress(t), 1},
	}
	want := 0
	config := "http: 127.0.0.1:0\ngrpc: off\nmodels:\n  - {name: find, source: motion}\nstreams:\n"
	for _, c := range cases {
		if c.source == "" {
			continue
		}
		want += c.processes
		config += fmt.Sprintf("  - {name: %s, source: %q, model: find, policy: every, loop: %v, sinks: {webhook: "+
			"%q, file: %s.jsonl}}\n",
			c.name, c.source, c.name == "loop", hook.URL, c.name)
	}
	p := serve(t, dir, config)

	answers := ""
	running := func() bool {
		answers = fetch(t, p.url+"/v2/streams")
		var list struct {
			Streams []struct {
				Name, State string
				Results     int
			}
		}
		if err := json.Unmarshal([]byte(answers), &list); err != nil {
			t.Fatalf("%v: %s", err, answers)
		}
		for _, s := range list.Streams {
			if s.Results == 0 && s.Name != "mute" {
				return false
			}
		}
		return delivered.Load() > 0 && len(descendants(t, p.cmd.Process.Pid)) >= want
	}
	for limit := time.Now().Add(killPatience); !running(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%d processes, want %d: %s\n%s", len(descendants(t, p.cmd.Process.Pid)), want, answers,
				p.words.String())
		}
	}
	answers += fetch(t, p.url+"/metrics")

	// Stop the server first, so that no new process starts during the listing.
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	left := hold(t, descendants(t, p.cmd.Process.Pid))
	if len(left) < want {
		t.Errorf("%d processes, want %d", len(left), want)
	}
	p.kill()
	for fd, pid := range left {
		if !ends(t, fd) {
			command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			t.Errorf("left: %q", bytes.ReplaceAll(command, []byte{0}, []byte{' '}))
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
	for where, text := range map[string]string{"the log": p.words.String(), "an answer": answers} {
		if strings.Contains(text, "geheim") {
			t.Errorf("%s tells a password: %s", where, text)
		}
	}
}

// program is a run of the program.
type program struct {
	cmd   *exec.Cmd
	url   string
	words syncBuffer // of standard error
	kill  func()     // by SIGKILL, once
}

// serve builds the program and starts the program with a configuration in a folder.
func serve(t *testing.T, dir, config string) *program {
	t.Helper()
	build(t, "go", "build", "-buildvcs=false", "-tags", testbuild.Tags(), "-o", filepath.Join(dir, "millrace"),
		"millrace/cmd/millrace")
	return serveAgain(t, dir, config)
}

// serveAgain starts the program that serve built in the folder.
func serveAgain(t *testing.T, dir, config string) *program {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "m.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &program{cmd: exec.Command(filepath.Join(dir, "millrace"), "serve", "--config", "m.yaml")}
	p.cmd.Dir, p.cmd.Stderr = dir, &p.words
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.kill = sync.OnceFunc(func() {
		_ = p.cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = p.cmd.Wait()
	})
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	_, address, ok := strings.Cut(line, "http://")
	if err != nil || !ok {
		t.Fatalf("%q, %v: %s", line, err, p.words.String())
	}
	p.url = "http://" + strings.Fields(address)[0]
	return p
}

// build runs a command to its end.
func build(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(testneeds.Program(t, name), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

// hold opens processes, so that the kernel does not reuse their ids, and returns the process ids by descriptor.
func hold(t *testing.T, pids []int) map[int]int {
	t.Helper()
	held := map[int]int{}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		switch {
		case err == unix.ESRCH: // over already
		case err != nil:
			t.Fatal(err)
		default:
			t.Cleanup(func() { _ = unix.Close(fd) })
			held[fd] = pid
		}
	}
	return held
}

// ends waits for the end of the process behind a descriptor.
func ends(t *testing.T, fd int) bool {
	t.Helper()
	for limit := time.Now().Add(killPatience); time.Now().Before(limit); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
		switch {
		case err != nil && err != unix.EINTR:
			t.Fatal(err)
		case n == 1:
			return true
		}
	}
	return false
}

// descendants lists the descendant processes of root, from /proc, without zombies.
func descendants(t *testing.T, root int) (below []int) {
	t.Helper()
	list, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	children := map[int][]int{}
	for _, e := range list {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile("/proc/" + e.Name() + "/stat") // the process may have ended
		// The name, in brackets, may hold anything.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], pid)
	}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		below = append(below, children[next[0]]...)
		next = append(next, children[next[0]]...)
	}
	return below
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v: %s", url, r.Status, err, b)
	}
	return string(b)
}

// rtspAddress starts GStreamer's RTSP server, and returns "" where GStreamer is missing.
func rtspAddress(t *testing.T) string {
	t.Helper()
	if err := videotest.NoRTSP(); err != nil {
		t.Logf("without RTSP: %v", err)
		return ""
	}
	addr, _ := videotest.RTSP(t)
	return "rtsp://" + addr
}

// syncBuffer collects a program's output for concurrent reading.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
