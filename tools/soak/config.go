package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"millrace/internal/onnxfile"
	"millrace/workers/onnx"
)

// The models, each with its own clients. Models named "Cut" have clients with broken connections.
const (
	wordsModel    = "words"     // a Python class, REST and gRPC
	sleepModel    = "sleep"     // delay, REST and gRPC
	comingModel   = "coming"    // identity, is unloaded and loaded
	picturesModel = "pictures"  // motion, REST
	onnxModel     = "mlp"       // ONNX, REST and gRPC
	everyModel    = "every"     // delay, plain WebSocket
	latestModel   = "latest"    // delay, plain WebSocket
	sessionModel  = "session"   // delay, millrace.v1
	graphModel    = "graph"     // two identities, millrace.v1
	callsModel    = "calls"     // a Python class, a stream of gRPC
	cutREST       = "cut-rest"  // delay
	cutGRPC       = "cut-grpc"  // delay
	cutPlain      = "cut-plain" // delay
	cutSession    = "cut-v1"    // delay
	slowModel     = "slow"      // identity, clients that stop reading
	findModel     = "find"      // motion, permanent streams of the configuration
	seenModel     = "seen"      // motion, temporary streams
)

// The streams of the configuration.
const (
	loopStream    = "loop"    // a file
	programStream = "program" // a program
	cameraStream  = "camera"  // motion JPEG over HTTP
	guestStream   = "guest"   // in one form of the configuration only
)

//go:embed services.py
var services []byte

// site is the folder of a run with the files of the configuration.
type site struct {
	dir                 string
	camera, hook, clips string
	onnx                bool
}

// newSite writes the files named in the configuration.
func newSite(dir string) (*site, error) {
	s := &site{dir: dir, clips: filepath.Join(dir, "clip.mp4")}
	if err := os.Mkdir(s.path("tmp"), 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "services.py"), services, 0o600); err != nil {
		return nil, err
	}
	if _, err := onnx.Library(); err == nil {
		s.onnx = true
		if err := os.WriteFile(filepath.Join(dir, "mlp.onnx"), onnxfile.MLP(mlpWidth, 2*mlpWidth, mlpWidth, 2),
			0o600); err != nil {
			return nil, err
		}
	}
	out, err := exec.Command("ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i",
		"testsrc2=size=128x96:rate=10:duration=20", "-pix_fmt", "yuv420p", s.clips).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ffmpeg, which makes the clip of a stream, failed (install ffmpeg): %w: %s", err, out)
	}
	return s, nil
}

// mlpWidth is the number of inputs, and of outputs, of the ONNX model.
const mlpWidth = 64

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// form is the variable part of the configurations read at SIGHUP.
type form struct {
	sleep  string // fixed of the models of everyModel and sessionModel
	find   bool   // another setting of the model of the streams
	guest  bool   // include a temporary stream and its model
	broken string // text that makes the configuration invalid
}

// first is the form at the start of the server, and again at the end.
var first = form{sleep: "1ms"}

// config writes the configuration of the server.
func (s *site) config(f form) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("http: 127.0.0.1:0")
	line("grpc: 127.0.0.1:0")
	line("log: {file: %s}", s.path("log"))
	line("sources: {allow_private: true}")
	line("limits: {resume: 5s}")
	line("models:")
	for _, name := range []string{wordsModel, callsModel} {
		line("  - {name: %s, source: %s, class: Words, limits: {run: 1s, restarts: 1000}}", name, s.path("services.py"))
	}
	line("  - {name: %s, source: delay, fixed: 2ms, instances: 2}", sleepModel)
	for _, name := range []string{comingModel, slowModel, "left", "right"} {
		line("  - {name: %s, source: identity}", name)
	}
	for _, name := range []string{everyModel, sessionModel} {
		line("  - {name: %s, source: delay, fixed: %s, batching: {max_size: 4}}", name, f.sleep)
	}
	line("  - {name: %s, source: delay, fixed: 15ms}", latestModel)
	// so slow that a reset comes while a frame runs
	for _, name := range []string{cutREST, cutGRPC, cutPlain, cutSession} {
		line("  - {name: %s, source: delay, fixed: 30ms}", name)
	}
	line("  - {name: %s, source: graph, steps: [{model: left, input: {x: a}, output: {x: b}}, {model: right, input: "+
		"{x: b}, output: {x: c}}], outputs: [c]}", graphModel)
	line("  - {name: %s, source: motion}", picturesModel)
	line("  - {name: %s, source: motion, batching: {max_size: %d}}", findModel, map[bool]int{false: 4, true: 2}[f.find])
	line("  - {name: %s, source: motion}", seenModel)
	if s.onnx {
		line("  - {name: %s, source: %s, batching: {max_size: 8}}", onnxModel, s.path("mlp.onnx"))
	}
	if f.guest {
		line("  - {name: guest, source: identity}")
	}
	line("streams:")
	line("  - {name: %s, source: %s, loop: true, model: %s, fps: 10, sinks: {file: %s}}", loopStream, s.clips,
		findModel, s.file(loopStream))
	line("  - {name: %s, source: %q, model: %s, policy: every, sinks: {file: %s, webhook: %q}}", programStream,
		"exec:ffmpeg -nostdin -v error -re -f lavfi -i testsrc2=size=64x48:rate=10 -c:v mjpeg -f mpjpeg -", findModel,
		s.file(programStream), s.hook)
	line("  - {name: %s, source: %q, model: %s, sinks: {webhook: %q}}", cameraStream, s.camera, findModel, s.hook)
	if f.guest {
		line("  - {name: %s, source: %q, model: %s, sinks: {webhook: %q}}", guestStream, s.camera, seenModel, s.hook)
	}
	b.WriteString(f.broken)
	return b.String()
}

// file is the file for a stream's results.
func (s *site) file(stream string) string { return s.path(stream + ".jsonl") }
