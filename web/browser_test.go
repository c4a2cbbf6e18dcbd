package web_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/examples/spotter"
	"millrace/ingest/access"
	"millrace/ingest/streams"
	"millrace/internal/clip/truth"
	"millrace/internal/role"
	"millrace/internal/testneeds"
	"millrace/server"
	"millrace/tracing/spans"
)

var screenshots = flag.String("screenshots", "", "write pictures of the views into this folder, as PNG files")

var only = flag.String("only", "", "a regular expression: of the browser's cases run those alone")

// otherHost is a name of the server other than localhost: pages from otherHost get no camera.
const otherHost = "millrace.test"

// tracingUI is the address in links to traces.
const tracingUI = "http://127.0.0.1:16686"

// decoders is how many videos the server decodes at once.
const decoders = 4

// TestConsole drives the page in a real Chromium with testdata/browser/test.mjs.
func TestConsole(t *testing.T) {
	if testing.Short() {
		t.Skip("drives a browser")
	}
	dir := t.TempDir()
	shots := ""
	if *screenshots != "" {
		shots = t.TempDir()
	}
	given := map[string]any{"chromium": testneeds.Program(t, "chromium"), "foreign": otherHost, "screenshots": shots,
		"only": cmp.Or(*only, failedBefore(t)), "decoders": decoders, "tracing": tracingUI + "/trace/"}
	model := filepath.Join(dir, "spotter.onnx")
	write(t, model, spotter.Model)
	clip := filepath.Join(dir, "clip.mp4")
	write(t, clip, spotter.Clip)
	ffmpeg := func(name string, args ...string) string {
		file := filepath.Join(dir, name)
		do(t, "", testneeds.Program(t, "ffmpeg"), append(append([]string{"-v", "error", "-i", clip}, args...), file)...)
		return file
	}
	given["camera"] = ffmpeg("camera.mjpeg", "-q:v", "3")
	// The number of each frame is in the frame's upper edge, in 16 bits of 20 pixels.
	given["numbered"] = ffmpeg("numbered.mp4", "-t", "8", "-vf", "geq=lum='if(lt(Y,24),if(mod(floor(N/pow(2,floor(X/"+
		"20))),2),235,16),lum(X,Y))':cb='if(lt(Y,24),128,cb(X,Y))':cr='if(lt(Y,24),128,cr(X,Y))'", "-preset",
		"ultrafast")
	given["short"] = ffmpeg("short.mp4", "-t", "2")
	// Three minutes, more than a case may wait for anything: the file must not end before the server's advice.
	given["large"] = filepath.Join(dir, "large.mp4")
	do(t, "", testneeds.Program(t, "ffmpeg"), "-v", "error", "-stream_loop", "17", "-i", ffmpeg("larger.mp4", "-vf",
		"scale=640:480", "-preset", "ultrafast"), "-c", "copy", given["large"].(string))
	given["wide"] = ffmpeg("wide.mp4", "-vf", "scale=160:240,setsar=2")
	given["turned"] = ffmpeg("turned.mp4", "-t", "4", "-vf", "transpose=cclock")
	turn(t, given["turned"].(string))
	// The server reads PNG, whatever the file's name; the page converts formats unknown to the server, for example
	// BMP, to JPEG.
	given["pictures"] = []string{ffmpeg("one.png", "-frames:v", "1"), ffmpeg("one.bmp", "-frames:v", "1"),
		filepath.Join(dir, "png.jpg")}
	write(t, filepath.Join(dir, "png.jpg"), read(t, filepath.Join(dir, "one.png")))
	given["nonsense"] = filepath.Join(dir, "nonsense.mp4")
	write(t, given["nonsense"].(string), []byte("no video"))
	for _, name := range []string{"package.json", "package-lock.json", "page.mjs", "rules.mjs", "session.mjs",
		"tasks.mjs", "test.mjs", "views.mjs"} {
		write(t, filepath.Join(dir, name), read(t, filepath.Join("testdata/browser", name)))
	}
	do(t, dir, testneeds.Program(t, "npm"), "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund")

	s := start(t, "127.0.0.1:0", dir, model, clip)
	_, port, _ := net.SplitHostPort(s.Addr("http"))
	given["url"], given["insecure"] = "http://"+s.Addr("http"), "http://"+net.JoinHostPort(otherHost, port)
	guarded := startGuarded(t)
	given["path"] = atPath(t, "/ai", guarded.Addr("http"))
	given["guarded"] = map[string]any{"url": guarded.URL("http"), "keys": guarded.keys}
	apart := startApart(t)
	given["apart"] = map[string]any{"url": apart.URL("http"), "management": apart.URL("management")}
	programs := os.Getenv("PATH")
	b := browse(t, dir, given)
	var failed []string
	for b.next(t) {
		switch b.line.Ask {
		case "":
			if !t.Run(b.line.Case, b.judge) {
				failed = append(failed, b.line.Of)
			}
			continue
		case "unload gone":
			if err := s.Models().Unload(context.Background(), "gone", ""); err != nil {
				t.Fatal(err)
			}
		case "hide ffmpeg":
			t.Setenv("PATH", dir)
		case "show ffmpeg":
			t.Setenv("PATH", programs)
		case "revoke":
			guarded.revoke(t)
		case "stop":
			s.stop(t)
		case "start":
			s = start(t, s.Addr("http"), dir, model, clip)
		}
		b.answer(t)
	}
	keepFailed(t, failed) // of a browser that has run all cases
	s.stop(t)
	guarded.stop(t)
	apart.stop(t)
	if *screenshots != "" { // 32 colours do, at a third of the size
		for _, raw := range glob(t, filepath.Join(shots, "*.png")) {
			do(t, "", testneeds.Program(t, "ffmpeg"), "-v", "error", "-y", "-i", raw, "-vf",
				"split[a][b];[a]palettegen=max_colors=32[p];[b][p]paletteuse=dither=none",
				filepath.Join(*screenshots, filepath.Base(raw)))
		}
	}
}

// failedBefore returns a regular expression for the cases that failed when scripts/steps.sh ran the test before, "" for
// all cases: steps.sh runs a failed test again, and sets RERUN_FOLDER.
func failedBefore(t *testing.T) string {
	t.Helper()
	names, err := os.ReadFile(filepath.Join(os.Getenv("RERUN_FOLDER"), t.Name()))
	if os.Getenv("RERUN_FOLDER") == "" || err != nil {
		return ""
	}
	return "^(" + string(names) + ")$"
}

// keepFailed keeps the names of the failed cases for failedBefore.
func keepFailed(t *testing.T, names []string) {
	t.Helper()
	if folder := os.Getenv("RERUN_FOLDER"); folder != "" && len(names) > 0 {
		write(t, filepath.Join(folder, t.Name()), []byte(strings.Join(names, "|")))
	}
}

// turn makes players of an MP4 turn the picture by a quarter to the right, by the matrix of the track (ISO 14496-12,
// 8.3.2).
func turn(t *testing.T, file string) {
	data := read(t, file)
	at := bytes.Index(data, []byte("tkhd\x00"))
	if at < 0 {
		t.Fatalf("%s has no track", file)
	}
	var matrix []byte
	for _, v := range []uint32{0, 1 << 16, 0, 0xffff0000, 0, 0, 0, 0, 1 << 30} {
		matrix = binary.BigEndian.AppendUint32(matrix, v)
	}
	copy(data[at+44:], matrix)
	write(t, file, data)
}

// running is a server with its end.
type running struct {
	*server.Server
	stop func(t *testing.T)
}

// start starts a server whose streams read the videos of TestConsole: clip, and wide.mp4 of dir.
func start(t *testing.T, addr, dir, model, clip string) running {
	t.Helper()
	cfg := server.Config{}
	cfg.HTTP, cfg.GRPC, cfg.Log.Level, cfg.Hosts, cfg.Clip = addr, server.Off, "error", []string{otherHost},
		spotter.Clip
	cfg.Limits.MaxDecoders, cfg.Quotas.Decoders = decoders, new(int(decoders))
	cfg.Sources.AllowPrivate = true
	cfg.Parts = []any{&spans.Config{UIURL: tracingUI}}
	cfg.Streams = []streams.Config{
		{Name: "digits", Source: clip, Model: "spotter", FPS: 10, Loop: true},
		{Name: "wide", Source: filepath.Join(dir, "wide.mp4"), Model: "spotter", FPS: 2, Loop: true},
	}
	cfg.Sinks.Folder = t.TempDir()
	cfg.Data = filepath.Join(dir, "data")
	digits := fmt.Sprintf("%q,input.image.scale=0.00392157,output.boxes.threshold=0.3", model)
	if err := cfg.AddModels(
		"spotter="+digits,
		"tracked="+digits+",output.track=true",
		"late="+digits+",batching.kind=soft,batching.max_size=8,batching.max_delay=300ms", // newer frames supersede
		fmt.Sprintf("tensors=%q", model), // takes no pictures
		"motion=motion", "gone=motion", "spare=motion", "slow=delay,fixed=200ms"); err != nil {
		t.Fatal(err)
	}
	return run(t, cfg)
}

func run(t *testing.T, cfg server.Config) running {
	t.Helper()
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatalf("the server did not start (make onnxruntime fetches the library for ONNX models): %v", err)
	}
	return running{s, func(t *testing.T) {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server's end: %v", err)
		}
	}}
}

// startApart starts a server with a separate management address.
func startApart(t *testing.T) running {
	t.Helper()
	cfg := server.Config{}
	cfg.HTTP, cfg.GRPC, cfg.Log.Level, cfg.Management.Address = "127.0.0.1:0", server.Off, "error", "127.0.0.1:0"
	if err := cfg.AddModels("motion=motion"); err != nil {
		t.Fatal(err)
	}
	return run(t, cfg)
}

// guarded is a server whose clients need keys, and the keys by name.
type guarded struct {
	running
	file string
	keys map[string]string
}

func startGuarded(t *testing.T) guarded {
	t.Helper()
	g := guarded{file: filepath.Join(t.TempDir(), "keys.yaml"), keys: map[string]string{}}
	var entries []access.Key
	for name, roles := range map[string]role.Set{"viewer": role.Set(0).With(role.Infer).With(role.Watch),
		"all": role.All, "old": role.All} {
		var expires time.Time
		if name == "old" {
			expires = time.Unix(1, 0)
		}
		entry, text := access.NewKey(name, access.Grant{Roles: roles.Names(), Expires: expires})
		entries = append(entries, entry)
		g.keys[name] = text
	}
	if err := access.WriteKeys(g.file, entries); err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{}
	users := filepath.Join(t.TempDir(), "users.yaml")
	if err := access.WriteUsers(users, []access.User{{Name: "eva", Password: access.HashPassword("sécret: of eva"),
		Grant: access.Grant{Roles: []string{"watch"}}}}); err != nil {
		t.Fatal(err)
	}
	cfg.HTTP, cfg.GRPC, cfg.Log.Level, cfg.Clip, cfg.Auth.Keys, cfg.Auth.Users = "127.0.0.1:0", server.Off, "error",
		spotter.Clip, g.file, users
	cfg.Data, cfg.Tasks.MaxInput = filepath.Join(t.TempDir(), "data"), 1<<20
	if err := cfg.AddModels("motion=motion"); err != nil {
		t.Fatal(err)
	}
	g.running = run(t, cfg)
	return g
}

// revoke revokes all keys.
func (g guarded) revoke(t *testing.T) {
	if err := access.WriteKeys(g.file, nil); err != nil {
		t.Fatal(err)
	}
}

// browser is a running testdata/browser/test.mjs.
type browser struct {
	in    io.Writer
	lines *bufio.Reader
	line  struct {
		Ask, Case, Of, Error string
		Saw                  json.RawMessage
	}
}

func browse(t *testing.T, dir string, given map[string]any) *browser {
	t.Helper()
	arg, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	c := exec.CommandContext(ctx, testneeds.Program(t, "node"), "test.mjs", string(arg))
	c.Dir = dir
	// Whatever the browser leaves behind goes with the test's folder.
	c.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir, "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
	var stderr bytes.Buffer
	c.Stderr = &stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if t.Failed() {
			cancel()
		}
		if err := c.Wait(); err != nil {
			t.Errorf("test.mjs: %v\n%s", err, &stderr)
		}
		cancel()
	})
	return &browser{in: in, lines: bufio.NewReader(out)}
}

// next waits for the next line; false = no line is left.
func (b *browser) next(t *testing.T) bool {
	t.Helper()
	text, err := b.lines.ReadBytes('\n')
	if err == io.EOF {
		return false
	}
	b.line.Ask, b.line.Case, b.line.Of, b.line.Error, b.line.Saw = "", "", "", "", nil
	if err := json.Unmarshal(text, &b.line); err != nil {
		t.Fatalf("test.mjs said %q: %v", text, err)
	}
	return true
}

func (b *browser) answer(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(b.in, "done\n"); err != nil {
		t.Fatal(err)
	}
}

// judge is the test of one case.
func (b *browser) judge(t *testing.T) {
	if b.line.Error != "" {
		t.Fatal(b.line.Error)
	}
	var saw struct {
		Results []result
		Rest    json.RawMessage
	}
	if b.line.Saw != nil {
		if err := json.Unmarshal(b.line.Saw, &saw); err != nil {
			t.Fatal(err)
		}
	}
	short, _, _ := strings.Cut(string(b.line.Saw), `,"results"`)
	t.Log(short)
	switch of, _, _ := strings.Cut(b.line.Case, "/"); of {
	case "clip":
		judgeFrames(t, saw.Results)
	case "camera":
		judgeDigits(t, saw.Results)
	}
}

// result is an answer in the page's format.
type result struct {
	Media         float64 // place in the video, seconds
	Width, Height float64
	Boxes         []struct {
		X1, Y1, X2, Y2 float64
		Class          int
	}
}

func truthOf(t *testing.T) *truth.Truth {
	t.Helper()
	tr, err := truth.Read(bytes.NewReader(spotter.Truth))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// judgeFrames compares each answer with its frame: the drawn result belongs to the sent frame. A video may repeat the
// clip.
func judgeFrames(t *testing.T, results []result) {
	tr := truthOf(t)
	var score truth.Score
	for _, r := range results {
		// Half a frame later and back: the last frame of a repetition is not the first of the next.
		f := tr.At(math.Mod(r.Media+0.5/tr.FPS, float64(len(tr.Frames))/tr.FPS) - 0.5/tr.FPS)
		if f == nil {
			t.Errorf("an answer about second %g of the clip", r.Media)
			continue
		}
		var found []truth.Detection
		x, y := float64(tr.Width)/r.Width, float64(tr.Height)/r.Height
		for _, b := range r.Boxes {
			found = append(found, truth.Detection{Box: truth.Box{b.X1 * x, b.Y1 * y, b.X2 * x, b.Y2 * y},
				Class: b.Class})
		}
		score.AddClassified(f, found)
	}
	t.Logf("%d frames: %+v, precision %.3f, recall %.3f", len(results), score, score.Precision(), score.Recall())
	if score.Hits == 0 || score.Precision() < 0.9 || score.Recall() < 0.8 {
		t.Errorf("%d frames: %+v, precision %.3f, recall %.3f", len(results), score, score.Precision(), score.Recall())
	}
}

// judgeDigits compares the recognised digits with all digits in the clip, since the camera's position in the clip is
// unknown.
func judgeDigits(t *testing.T, results []result) {
	there, read := map[int]bool{}, map[int]int{}
	for _, f := range truthOf(t).Frames {
		for _, o := range f.Objects {
			there[*o.Class] = true
		}
	}
	right, all := 0, 0
	for _, r := range results {
		for _, b := range r.Boxes {
			read[b.Class]++
			all++
			if there[b.Class] {
				right++
			}
		}
	}
	t.Logf("%d frames: digits %v, read %v", len(results), there, read)
	for d := range there {
		if read[d] == 0 {
			t.Errorf("no %d was read in %d frames: %v", d, len(results), read)
		}
	}
	if all == 0 || float64(right)/float64(all) < 0.9 {
		t.Errorf("of %d digits read %d can be: there are %v, read were %v", all, right, there, read)
	}
}

func do(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c.Args, err, out)
	}
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}
