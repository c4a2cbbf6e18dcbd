package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/client/load"
	"millrace/workers/onnx"
)

// TestMain makes the test binary its own client process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childArg {
		if childMain(os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestEveryRowIsMeasured runs the whole table in rounds too short for valid measurements: each row is present and no
// frame is lost.
func TestEveryRowIsMeasured(t *testing.T) {
	idleStreams, mlpHidden, streamCounts, manyLive, manyIdle, watchedCameras, times = 50, 64, []int{1, 10}, 20, 150, 4,
		[]float64{0.5, 2, 10}
	footageSeconds, pulledCameras, chunkSizes = 1, []cameraGroup{{320, 240, 2, 45}}, [][2]int{{160, 120}}
	startCameras, startWidth, startHeight = []startCamera{{1, "tcp"}}, 320, 64
	mostProbes, capacitySize = 1, [2]int{320, 240}
	largeInput, waitingTasks = 4<<20, 2000
	rows, want := ".", []string{
		"WebSocket echo, 30 KB", "WebSocket echo, 300 KB", "REST tensor, 30 KB, read", "REST 224x224x3 JSON numbers",
		"native call", "graph of three identity steps", "path, gRPC, 1 KB: allocations",
		"path, WebSocket, 1 KB: switches of goroutines", "path, native, 1 KB, step: reply",
		"JPEG video", "H.264 320x240 pulled, 2 cameras at 30 fps",
		"H.264 320x240 pulled, 2 cameras, as fast as can be", "against OpenCV", "memory of one, its ffmpeg included",
		"a key frame each 1 s: time to the first answer", "a key frame each 1 s: age of the first answer",
		"H.264 160x120 chunks", "VP8 160x120 chunks", "VP9 160x120 chunks", "AV1 160x120 chunks",
		"metrics and traces on against off", "allocations a frame", "resident memory of an idle stream",
		"delay at 2x: goodput", "delay at 10x: p99 age",
		"JPEG 160x120 at 10x: answers", "streams: 10: Jain's index", "one at 20x the others' rate: Jain's index",
		"stateful beside 30 stateless: least share",
		"20 streams at 1 fps, plain", "20 streams at 1 fps, v1",
		"150 idle streams, plain, a connection each: goroutines", "150 idle streams, v1, 100 a connection: resident",
		"opened, plain, a connection each: p99", "opened, v1, 100 a connection: p99",
		"Python identity, 4 x 300 KB, against a bare loop",
		"Python identity, 4 x 300 KB, shared memory against the socket",
		"Python service with little JSON, against FastAPI and uvicorn (def)",
		"Python service that sleeps 1/30 s, 16 replicas", "Python worker killed", "all attackers: frames answered",
		"attackers: slow: p99", "stream beside 4 clients", "30 streams of JPEG video at 30 fps, Python class: p99",
		"320x240 cameras at 30 fps, motion, answered within 100 ms",
		"4 cameras, MJPEG 160x120 at 10 fps, 1 killed, 1 stalled: the other 2, answers",
		"2 GB in, 2 GB out through a task", "start after SIGKILL", "beside tasks of the model", "tasks that do nothing",
	}
	if _, err := onnx.Library(); err != nil {
		t.Log("the rows of ONNX are left out:", err)
		rows = "^[^o]|^overload"
	} else {
		want = append(want, "ONNX MLP, batch", "ONNX MLP, bare in step, batch", "ONNX MLP, bare staggered, batch",
			"ONNX small CNN, batch", "ONNX MLP, max_size 8 against 1", "through the small CNN, CPU a frame",
			"that the small CNN adds to motion", "320x240 cameras at fps: 10, small CNN, answered within 100 ms",
			"30 streams of JPEG video at 30 fps, small CNN: p99", "42 streams of JPEG video at 30 fps, small CNN: p99",
			"against FastAPI, uvicorn and cv2.dnn: at most", "against gRPC-Go and onnxruntime_go: at")
	}
	if testing.Short() {
		rows, want = "^native|^ws", []string{"WebSocket echo, 30 KB", "native call"}
	}
	var out, errs bytes.Buffer
	if status := run([]string{"-json", "-round", "60ms", "-rounds", "1", "-rows", rows}, &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	var table Table
	if err := json.Unmarshal(out.Bytes(), &table); err != nil {
		t.Fatal(err)
	}
	for _, want := range want {
		found := false
		for _, r := range table.Rows {
			// may be 0
			found = found || strings.Contains(r.Name, want) && (r.Millrace > 0 || r.Unit == "KB" ||
				r.Unit == "cameras" || strings.Contains(r.Name, "adds"))
		}
		if !found {
			t.Errorf("there is no row %q", want)
		}
	}
	for _, r := range table.Rows {
		if r.Limit == "= 0" && !r.Met {
			t.Errorf("%+v", r)
		}
	}
	var text bytes.Buffer
	table.write(&text)
	lines := strings.Split(text.String(), "\n")
	if len(lines) < len(table.Rows)+4 || !strings.HasPrefix(lines[0], "row ") ||
		!strings.Contains(lines[1], "frames/s") {
		t.Errorf("%q", lines)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-rows", "("}, {"-round", "0"}, {"-rounds", "0"}, {"-none"}, {"more"}} {
		var out, errs bytes.Buffer
		if status := run(args, &out, &errs); status != 2 || errs.Len() == 0 || out.Len() > 0 {
			t.Errorf("%q: status %d: %s", args, status, errs.String())
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if m := median(c.v); m != c.want {
			t.Errorf("%v: %v", c.v, m)
		}
	}
}

func TestFairShares(t *testing.T) {
	for _, c := range []struct {
		asked    []float64
		capacity float64
		want     []float64
	}{
		{[]float64{10, 10}, 10, []float64{5, 5}},
		{[]float64{2, 40, 9, 9}, 20, []float64{2, 6, 6, 6}},
		{[]float64{1, 2}, 10, []float64{1, 2}}, // all demands are met
		{[]float64{3, 0}, 2, []float64{2, 0}},
		{nil, 5, []float64{}},
	} {
		if got := fairShares(c.asked, c.capacity); !slices.Equal(got, c.want) {
			t.Errorf("%v of %v: %v, want %v", c.capacity, c.asked, got, c.want)
		}
	}
	// Three streams get less than their demand, while one gets its whole demand.
	greedy := demand{asked: []float64{12, 12, 12, 240}, got: []float64{5, 5, 5, 25}}
	if got := greedy.ofShare(); !slices.Equal(got, []float64{.5, .5, .5, 2.5}) {
		t.Errorf("%v", got)
	}
	none := demand{asked: []float64{1}, got: []float64{0}}
	if got := none.ofShare(); !slices.Equal(got, []float64{0}) {
		t.Errorf("%v", got)
	}
}

func TestEndings(t *testing.T) {
	var a endings
	a.add(&load.Report{Sent: 10, Answered: 6, Drops: map[string]uint64{"superseded": 3, "overtaken": 1}})
	if r := a.row("x: "); r.Name != "x: 10 sent = 6 answered + 1 overtaken + 3 superseded" || !r.Met ||
		r.Millrace != 0 {
		t.Errorf("%+v", r)
	}
	a.add(&load.Report{Sent: 2, Answered: 1, Unsent: 4, Unaccounted: 1})
	a.add(&load.Report{Sent: 2, Answered: 2, Failed: 1, Unaccounted: -1, Unexpected: 1,
		Lost: map[string]uint64{"EOF": 3}})
	if r := a.row(""); r.Name != "14 sent = 9 answered + 1 overtaken + 3 superseded + 1 failed; 4 due were not sent" ||
		r.Met || r.Millrace != 5 {
		t.Errorf("%+v", r)
	}
}

func TestBeforeAndAfter(t *testing.T) {
	from := time.Now()
	mid, to := from.Add(2*time.Second), from.Add(6*time.Second)
	// Results come every 100 ms, and after mid at intervals of gap. All have the same age, in ms.
	watched := func(gap time.Duration, was, is int) *watcher {
		w := &watcher{}
		for at := from.Add(-time.Second); at.Before(to.Add(time.Second)); {
			age := was
			step := 100 * time.Millisecond
			if !at.Before(mid) {
				age, step = is, gap
			}
			w.line(fmt.Appendf(nil, `{"stream":"x","seq":1,"received_us":%d,"outputs":[]}`,
				at.UnixMicro()-int64(age)*1000), at)
			at = at.Add(step)
		}
		return w
	}
	p, err := compare([]*watcher{watched(100*time.Millisecond, 5, 5), watched(125*time.Millisecond, 5, 10)}, from, mid,
		to)
	if err != nil || p.fps != [2]float64{20, 18} || p.worst != 0.8 || math.Round(p.age[0]) != 5 ||
		math.Round(p.age[1]) != 10 {
		t.Errorf("%+v", p)
	}
	b := &bench{table: &Table{}}
	b.addPairs([]beforeAndAfter{p, {fps: [2]float64{20, 20}, age: [2]float64{4, 5}, worst: 1},
		{fps: [2]float64{20, 19}, age: [2]float64{4, 5.6}, worst: 0.96}})
	rows := b.table.Rows
	if len(rows) != 3 || rows[0].Millrace != 19 || rows[1].Ratio != 0.96 || !rows[1].Met || rows[2].Ratio != 1.4 ||
		!rows[2].Met {
		t.Errorf("%+v", rows)
	}
	if silent, err := compare([]*watcher{{}, watched(100*time.Millisecond, 5, 5)}, from, mid, to); err != nil ||
		silent.worst != 0 {
		t.Errorf("%+v", silent)
	}
}

func TestWatchersKeepFailures(t *testing.T) {
	for _, line := range []string{`{"error":{"code":"timeout","message":"x"}}`, `{`} {
		var w watcher
		w.line(nil, time.Now())
		if w.err != nil {
			t.Error(w.err)
		}
		w.line([]byte(line), time.Now())
		if _, err := compare([]*watcher{&w}, time.Now(), time.Now(), time.Now()); err == nil || w.count() != 0 {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestP99(t *testing.T) {
	ages := make([]time.Duration, 200)
	for i := range ages {
		ages[i] = time.Duration(200-i) * time.Millisecond
	}
	if got := p99(ages); got != 198 {
		t.Error(got)
	}
	if got := p99(ages[:1]); got != 1 { // now sorted
		t.Error(got)
	}
	if p99(nil) != 0 {
		t.Error("none")
	}
}

func TestMemoryIsFlat(t *testing.T) {
	for _, c := range []struct {
		rounds []float64
		met    bool
	}{{[]float64{10 << 20}, true}, {[]float64{10 << 20, 30 << 20, 11 << 20}, true},
		{[]float64{10 << 20, 12 << 20}, false}} {
		if r := memoryRow("x", c.rounds); r.Met != c.met {
			t.Errorf("%v: %+v", c.rounds, r)
		}
	}
}

// The time of a process counts with its ancestors', also after its end.
func TestUsageOfProcesses(t *testing.T) {
	before, err := usageOf(os.Getpid())
	if err != nil || before.pss < 1<<20 {
		t.Fatalf("%+v, %v", before, err)
	}
	cmd := exec.Command("sh", "-c", "sh -c 'while :; do :; done' & read line; kill $!; wait $!")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	least := before.children + 100*time.Millisecond
	var now treeUsage
	for deadline := time.Now().Add(time.Minute); now.children < least; {
		if now, err = usageOf(os.Getpid()); err != nil || time.Now().After(deadline) {
			t.Fatalf("%+v after %+v, %v", now, before, err)
		}
	}
	if own, err := usageOf(cmd.Process.Pid); err != nil || own.children < least-before.children ||
		own.own > own.children {
		t.Errorf("%+v, %v", own, err)
	}
	_ = in.Close()
	_ = cmd.Wait()
	if after, err := usageOf(os.Getpid()); err != nil || after.children < now.children {
		t.Errorf("%+v after %+v, %v", after, now, err)
	}
	if _, err := usageOf(cmd.Process.Pid); err == nil {
		t.Error("a process that has ended")
	}
}

func TestAgesSinceCapture(t *testing.T) {
	var w watcher
	start := time.Now()
	// The source sends a frame every 100 ms. The frames wait 5, 0, 30 and 250 ms before receipt by the server, and
	// the answers take 10 ms.
	for i, waits := range []int64{5, 0, 30, 250} {
		received := start.Add(time.Duration(100*int64(i)+waits) * time.Millisecond)
		w.line(fmt.Appendf(nil, `{"seq":1,"received_us":%d,"pts_us":%d,"outputs":[]}`, received.UnixMicro(),
			7e6+100000*i), received.Add(10*time.Millisecond))
	}
	ages := w.sinceCapture(start.Add(50*time.Millisecond), start.Add(time.Second))
	for i, want := range []float64{10, 40, 260} {
		if len(ages) != 3 || math.Abs(ages[i].Seconds()*1000-want) > 1 {
			t.Fatalf("%v: want %v at %d", ages, want, i)
		}
	}
}
