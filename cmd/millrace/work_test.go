package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/client"
	"millrace/ingest/access"
	"millrace/internal/testneeds"
)

// farm is a server that keeps tasks and runs none, for consumers in other processes.
type farm struct {
	t    *testing.T
	p    *process
	addr string
	data string
	temp string // of the consumers
	cl   *client.Client
}

func newFarm(t *testing.T, args ...string) *farm {
	t.Helper()
	dir := t.TempDir()
	f := &farm{t: t, data: filepath.Join(dir, "data"), temp: filepath.Join(dir, "temp")}
	f.start("127.0.0.1:0", args...)
	return f
}

// start starts the server at an address.
func (f *farm) start(addr string, args ...string) {
	f.t.Helper()
	f.p, f.addr = readyServer(f.t, command(f.t, append([]string{"serve", "--http", addr, "--grpc", "off",
		"--model", "other=identity", "--data", f.data, "--tasks-consume", "off"}, args...)...))
	f.dial("")
}

func (f *farm) dial(key string) {
	f.t.Helper()
	cl, err := client.NewWith(f.addr, client.Options{Token: key})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(cl.Close)
	f.cl = cl
}

// work starts a consumer with the models echo and slow, and returns when the models are ready.
func (f *farm) work(name, slow string, args ...string) *process {
	f.t.Helper()
	p := begin(f.t, f.command(name, slow, args...))
	if !slices.Contains(args, "--json") { // which prints the line elsewhere
		p.until("millrace works")
	}
	return p
}

func (f *farm) command(name, slow string, args ...string) *exec.Cmd {
	return command(f.t, append([]string{"work", "--from", f.addr, "--consumer", name, "--temp", f.temp, "--model",
		"echo=identity", "--model", "slow=delay,fixed=" + slow}, args...)...)
}

// largeInput is an input that is stored in a file.
var largeInput = strings.Repeat(" ", 5000) + workInput

const workInput = `{"inputs":[{"name":"x","datatype":"INT32","shape":[2],"data":[7,8]}]}`

func (f *farm) submit(model string) client.Task {
	f.t.Helper()
	return f.submitInput(model, workInput)
}

func (f *farm) submitInput(model, input string) client.Task {
	f.t.Helper()
	t, err := f.cl.SubmitTask(f.t.Context(), client.TaskRequest{Model: model, Body: strings.NewReader(input),
		Size: int64(len(input))})
	if err != nil {
		f.t.Fatal(err)
	}
	return t
}

// finished returns a finished task.
func (f *farm) finished(id string) client.Task {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	t, err := f.cl.WaitTask(ctx, id)
	if err != nil {
		f.t.Fatal(err)
	}
	if t.State != "finished" {
		f.t.Fatalf("the task: %+v, error %+v", t, t.Error)
	}
	return t
}

// running returns a task that runs.
func (f *farm) running(id string) client.Task {
	f.t.Helper()
	for {
		t, err := f.cl.Task(f.t.Context(), id)
		if err != nil {
			f.t.Fatal(err)
		}
		if t.State == "running" {
			return t
		}
		if t.Over() {
			f.t.Fatalf("the task: %+v, error %+v", t, t.Error)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// received waits until a consumer of work has received a task. The server says running before the consumer has the
// answer to its request for a task: the folder of the claim is there afterwards.
func (f *farm) received(id string) {
	f.t.Helper()
	for {
		f.running(id)
		if claims, _ := filepath.Glob(filepath.Join(f.temp, "*", id, "*")); len(claims) > 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// until waits until a task is in a state, and returns the task.
func (f *farm) until(id string, is func(*client.Task) bool) client.Task {
	f.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		t, err := f.cl.Task(f.t.Context(), id)
		if err != nil {
			f.t.Fatal(err)
		}
		if is(&t) {
			return t
		}
		if time.Now().After(end) {
			f.t.Fatalf("the task: %+v, error %+v", t, t.Error)
		}
	}
}

// claims returns the claims in the metrics of the server, by event.
func (f *farm) claims(event string) (n int) {
	f.t.Helper()
	r, err := http.Get("http://" + f.addr + "/metrics")
	if err != nil {
		f.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\nmillrace_task_claims_total{event=\""+event+"\"} ")
	if !ok {
		f.t.Fatalf("the metrics lack the claims that were %s", event)
	}
	if _, err := fmt.Sscan(rest, &n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// stop ends a consumer with SIGTERM, and returns the exit status.
func (f *farm) stop(p *process) int {
	f.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		f.t.Fatal(err)
	}
	return status(f.t, p.end())
}

// left returns the files of consumers.
func (f *farm) left() (names []string) {
	f.t.Helper()
	entries, err := os.ReadDir(f.temp)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestWorkProgress: a finished task has the progress of the end, however soon the end followed the begin.
func TestWorkProgress(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	f.work("a", "20ms")
	jpeg, err := os.ReadFile(picture(t))
	if err != nil {
		t.Fatal(err)
	}
	const n = 5
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for i := range n {
		w, err := z.Create(fmt.Sprintf("%d.jpg", i))
		if err == nil {
			_, err = w.Write(jpeg)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	task, err := f.cl.SubmitTask(t.Context(), client.TaskRequest{Model: "slow", Type: "application/zip",
		Body: &archive, Size: int64(archive.Len())})
	if err != nil {
		t.Fatal(err)
	}
	if p := f.finished(task.ID).Progress; p.Done != n || p.Total != n {
		t.Errorf("the progress: %+v", p)
	}
}

// TestWork: two consumers share the tasks of models that the server does not know, end with SIGTERM, and leave no
// files. A task without a consumer expires.
func TestWork(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	expires, err := f.cl.SubmitTask(t.Context(), client.TaskRequest{Model: "nobody", Body: strings.NewReader("x"),
		Size: 1, Expires: "1s"})
	if err != nil {
		t.Fatal(err)
	}
	a, b := f.work("left", "50ms"), f.work("right", "50ms")
	const n = 40
	var ids []string
	for range n {
		ids = append(ids, f.submit("slow").ID)
	}
	by := map[string]int{}
	for _, id := range ids {
		task := f.finished(id)
		by[task.Consumer]++
		if task.Attempt != 1 {
			t.Errorf("%s ran %d times", id, task.Attempt)
		}
		if _, err := f.cl.TaskResult(t.Context(), id, 0); err != nil {
			t.Error(err)
		}
	}
	if by["left"] < n/4 || by["right"] < n/4 || by["left"]+by["right"] != n {
		t.Errorf("the tasks of the consumers: %v", by)
	}
	for end := time.Now().Add(10 * time.Second); f.claims("finished") < n && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // the end of a task is counted after the client has heard of the end
	}
	if got := [2]int{f.claims("claimed"), f.claims("finished")}; got != [2]int{n, n} {
		t.Errorf("the claims: %v", got)
	}
	for _, p := range []*process{a, b} {
		if code := f.stop(p); code != 0 {
			t.Errorf("exit status %d: %s", code, &p.stderr)
		}
	}
	if left := f.left(); len(left) > 0 {
		t.Errorf("files remain: %v", left)
	}
	if task := f.until(expires.ID, (*client.Task).Over); task.State != "expired" {
		t.Errorf("a task without a consumer is %s", task.State)
	}
}

// TestWorkAnnotates: a consumer on another host writes the annotated video of a task, and leaves no file.
func TestWorkAnnotates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	clip, out := filepath.Join(dir, "clip.mp4"), filepath.Join(dir, "out.mp4")
	if said, err := exec.Command(testneeds.Program(t, "ffmpeg"), "-v", "error", "-f", "lavfi", "-i",
		"testsrc=size=64x48:rate=10", "-frames:v", "30", "-pix_fmt", "yuv420p", clip).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	f := newFarm(t)
	p := f.work("gpu", "50ms", "--model", "find=motion")
	said, err := command(t, "tasks", "submit", "find", "--addr", f.addr, "--file", clip, "--annotate", "--wait", "5m",
		"--out", out).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	frames, err := exec.Command(testneeds.Program(t, "ffprobe"), "-v", "error", "-count_frames", "-show_entries",
		"stream=codec_name,nb_read_frames", "-of", "csv=p=0", out).CombinedOutput()
	if err != nil || strings.TrimSpace(string(frames)) != "h264,30" {
		t.Errorf("%v: %s", err, frames)
	}
	if code := f.stop(p); code != 0 {
		t.Errorf("exit status %d: %s", code, &p.stderr)
	}
	if left := f.left(); len(left) > 0 {
		t.Errorf("files remain: %v", left)
	}
}

// TestWorkKilled: when a consumer is killed, the task runs on another consumer of the same name, and finishes once. The
// next consumer removes the files of the killed one.
func TestWorkKilled(t *testing.T) {
	t.Parallel()
	f := newFarm(t, "--tasks-lease", "1s")
	a := f.work("twin", "10m")
	task := f.submit("slow")
	f.received(task.ID)
	b := f.work("twin", "10ms")
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if task = f.finished(task.ID); task.Attempt != 2 || task.Consumer != "twin" {
		t.Errorf("the task: %+v", task)
	}
	_ = a.end()
	f.stop(b)
	f.stop(f.work("twin", "10ms"))
	if left := f.left(); len(left) > 0 {
		t.Errorf("files remain: %v", left)
	}
	if n := f.claims("finished"); n != 1 {
		t.Errorf("the task finished %d times", n)
	}
}

// TestWorkPaused: the result of a consumer that was stopped for longer than the lease is refused, and changes nothing.
func TestWorkPaused(t *testing.T) {
	t.Parallel()
	f := newFarm(t, "--tasks-lease", "1s")
	a := f.work("late", "500ms", "--json")
	task := f.submit("slow")
	f.received(task.ID)
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	f.until(task.ID, func(t *client.Task) bool { return t.State == "queued" })
	b := f.work("prompt", "10ms")
	task = f.finished(task.ID)
	before := f.claims("refused")
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	line := a.until(task.ID)
	var ended attempt
	if err := json.Unmarshal([]byte(line), &ended); err != nil || ended.Outcome != "lost" || ended.Attempt != 1 {
		t.Errorf("the late consumer: %s", line)
	}
	after, err := f.cl.Task(t.Context(), task.ID)
	if err != nil || after.Consumer != "prompt" || after.Attempt != 2 || !after.Ended.Equal(task.Ended) ||
		after.Result.SHA256 != task.Result.SHA256 {
		t.Errorf("the task: %+v, was %+v, %v", after, task, err)
	}
	if f.claims("refused") == before {
		t.Error("no request was refused")
	}
	next := f.submit("echo") // the late consumer goes on
	f.stop(b)
	f.finished(next.ID)
	f.stop(a)
}

// TestWorkServerKilled: consumers go on with their tasks while the server is down, and deliver the results to the
// next process of the server.
func TestWorkServerKilled(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	a := f.work("a", "2s", "--slots", "2")
	var ids []string
	for range 4 {
		ids = append(ids, f.submit("slow").ID)
	}
	f.received(ids[0])
	if err := f.p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = f.p.end()
	f.start(f.addr)
	for _, id := range ids {
		if task := f.finished(id); task.Attempt != 1 {
			t.Errorf("the task ran %d times: %+v", task.Attempt, task)
		}
	}
	if code := f.stop(a); code != 0 {
		t.Errorf("exit status %d: %s", code, &a.stderr)
	}
	if !strings.Contains(a.stderr.String(), "answers again") {
		t.Errorf("the log: %s", &a.stderr)
	}
}

// TestWorkDrains: a consumer that ends finishes a short task, and gives a long task back without an attempt.
func TestWorkDrains(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	a := f.work("a", "1s")
	task := f.submit("slow")
	f.received(task.ID)
	if code := f.stop(a); code != 0 {
		t.Errorf("exit status %d: %s", code, &a.stderr)
	}
	if got, err := f.cl.Task(t.Context(), task.ID); err != nil || got.State != "finished" {
		t.Errorf("the short task: %+v, %v", got, err)
	}
	a = f.work("a", "10m", "--drain", "100ms")
	task = f.submit("slow")
	f.received(task.ID)
	if code := f.stop(a); code != 0 {
		t.Errorf("exit status %d: %s", code, &a.stderr)
	}
	got, err := f.cl.Task(t.Context(), task.ID)
	if err != nil || got.State != "queued" || got.LastAttempt-got.Attempt != 3 {
		t.Errorf("the long task: %+v, %v", got, err)
	}
}

// TestWorkKeys: a consumer needs the role work, a key with only this role opens nothing else, a key takes tasks of its
// models only, and the removal of the key ends the consumer and its claim.
func TestWorkKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys.yaml")
	var all []access.Key
	token := func(name string, g access.Grant) (file, text string) {
		entry, text := access.NewKey(name, g)
		all = append(all, entry)
		file = filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file, text
	}
	inferFile, inferKey := token("infer", access.Grant{Roles: []string{"infer"}})
	workFile, workKey := token("work", access.Grant{Roles: []string{"work"}, Models: []string{"slow"}})
	if err := access.WriteKeys(keys, all); err != nil {
		t.Fatal(err)
	}
	f := newFarm(t, "--auth-keys", keys)
	if _, stderr, code := finish(t, f.command("a", "1s", "--token-file", inferFile)); code != 1 ||
		!strings.Contains(stderr, "has not the role work") {
		t.Errorf("a key without the role: exit status %d: %s", code, stderr)
	}
	if _, stderr, code := finish(t, f.command("a", "1s")); code != 1 || !strings.Contains(stderr, "--token-file") {
		t.Errorf("without a key: exit status %d: %s", code, stderr)
	}
	for _, path := range []string{"/v2/tasks", "/v2/models/other", "/v2/repository/index", "/session_status"} {
		q, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+f.addr+path, nil)
		q.Header.Set("Authorization", "Bearer "+workKey)
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if want := path == "/session_status"; (r.StatusCode/100 == 2) != want {
			t.Errorf("%s with the role work: %d", path, r.StatusCode)
		}
	}
	f.dial(inferKey)
	other := f.submit("echo")
	a := f.work("a", "10m", "--slots", "2", "--token-file", workFile)
	task := f.submit("slow")
	f.received(task.ID)
	if got, err := f.cl.Task(t.Context(), other.ID); err != nil || got.State != "queued" {
		t.Errorf("a task of another model: %+v, %v", got, err)
	}
	if err := access.WriteKeys(keys, all[:1]); err != nil {
		t.Fatal(err)
	}
	got := f.until(task.ID, func(t *client.Task) bool { return t.State == "queued" })
	if got.LastAttempt-got.Attempt != 3 {
		t.Errorf("after the removal of the key: %+v", got)
	}
	if code := status(t, a.end()); code != 1 || !strings.Contains(a.stderr.String(), "key") {
		t.Errorf("exit status %d: %s", code, &a.stderr)
	}
}

// TestWorkDamagedInput: an input with a changed byte fails without another attempt, and the model does not get it.
func TestWorkDamagedInput(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	task := f.submitInput("echo", largeInput)
	name := filepath.Join(f.data, "files", task.ID[30:], task.ID, "input")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-6]++
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	f.work("a", "1s")
	task = f.until(task.ID, (*client.Task).Over)
	if task.State != "failed" || task.Attempt != 1 || !strings.Contains(task.Error.Message, "damaged") {
		t.Errorf("the task: %+v, error %+v", task, task.Error)
	}
}

// TestWorkLarge runs a task with an input and a result of 256 MiB, and prints the memory of both processes.
func TestWorkLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	t.Parallel()
	f := newFarm(t)
	a := f.work("a", "1s", "--limits-max-body", "300MiB", "--memory-budget", "2GiB")
	const size = 256 << 20
	head := fmt.Sprintf(`{"inputs":[{"name":"x","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}],`+
		`"parameters":{"binary_data_output":true}}`, size, size)
	task, err := f.cl.SubmitTask(t.Context(), client.TaskRequest{Model: "echo", HeaderLength: len(head),
		Type: "application/octet-stream", Size: int64(len(head) + size),
		Body: io.MultiReader(strings.NewReader(head), io.LimitReader(zeros{}, size))})
	if err != nil {
		t.Fatal(err)
	}
	if task = f.finished(task.ID); task.Result.Size < size {
		t.Errorf("the result has %d bytes", task.Result.Size)
	}
	t.Logf("%v from the claim to the end; server %s, consumer %s", task.Ended.Sub(task.Started), peak(t, f.p), peak(t, a))
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// peak returns the greatest memory of a process.
func peak(t *testing.T, p *process) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return "?"
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}
