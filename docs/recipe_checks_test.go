package docs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"millrace/internal/inferencepb"
	"millrace/internal/onnxfile"
	"millrace/internal/testneeds"
)

// checkTokens leaves in the middle of an answer: the server closes the generator, which would otherwise run for
// another half minute.
func checkTokens(t *testing.T, r *recipe) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	const body = `{"messages": [{"role": "user", "content": "the text"}], "max_tokens": 4000, "stream": true}`
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+r.addr+":8000/v1/chat/completions",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	reply, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if kind := reply.Header.Get("Content-Type"); reply.StatusCode != 200 ||
		!strings.HasPrefix(kind, "text/event-stream") {
		t.Fatalf("%s %s", reply.Status, kind)
	}
	for events := bufio.NewReader(reply.Body); ; {
		line, err := events.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "data: ") {
			break
		}
	}
	left := time.Now()
	leave()
	r.programs["millrace serve ../examples/tokens/tokens.py"].wait(t, `(?s)the client left.*the client left`) // the first one is curl
	if took := time.Since(left); took > 10*time.Second {
		t.Errorf("the generator was closed after %s", took)
	}
}

// face is the box found by the detector of writeFaces in each picture.
var face = image.Rect(80, 60, 160, 120)

// writeFaces writes the reader's files: a detector in the form of UltraFace that finds the same box in each picture,
// and a picture of 320 x 240 in two colours.
func writeFaces(t *testing.T, r *recipe) {
	t.Helper()
	model := onnxfile.Constant(map[string][]int{"scores": {1, 2}, "boxes": {1, 4}},
		map[string][]float32{"scores": {0, 0.9}, "boxes": {0.25, 0.25, 0.5, 0.5}})
	model.Inputs[0] = onnxfile.Value{Name: "input", Type: onnxfile.Float32,
		Dims: []any{"N", int64(3), int64(240), int64(320)}}
	model.Nodes[0].Inputs[0] = "input"
	r.write(t, "version-RFB-320.onnx", string(model.Bytes()))
	var file bytes.Buffer
	if err := png.Encode(&file, people()); err != nil {
		t.Fatal(err)
	}
	r.write(t, "people.jpg", file.String())
}

func people() *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, 320, 240))
	for i := range img.Pix {
		img.Pix[i] = 255
		if i/4%2 == 0 && i%4 == 0 {
			img.Pix[i] = 55
		}
	}
	return img
}

// checkBlur compares the picture written by hide.py, pixel by pixel: the box has its mean colour, and the rest is
// unchanged. With the digits of the page, hide.py finds boxes in a frame of the video, and only the boxes differ.
func checkBlur(t *testing.T, r *recipe) {
	hidden, want := r.picture(t, "hidden.png"), people()
	draw.Draw(want, face, image.NewUniform(color.RGBA{155, 255, 255, 255}), image.Point{}, draw.Src)
	if at := differ(hidden, want); !at.Empty() {
		t.Errorf("hidden.png differs in %v from the picture with its face filled", at)
	}
	entries := regexp.MustCompile(`(?ms)^  - name: faces\n.*?(?:^  - |^`+"```"+`)`).FindAllString(r.text, -1)
	if len(entries) != 2 {
		t.Fatalf("the page has %d models faces, want 2", len(entries))
	}
	change := strings.NewReplacer(strings.TrimSuffix(entries[0], "  - "), strings.TrimSuffix(entries[1], "```"),
		"{input: frame}", "{image: frame}")
	r.write(t, "millrace.yaml", change.Replace(r.read(t, "millrace.yaml")))
	r.restart(t)
	ffmpeg := testneeds.Program(t, "ffmpeg")
	r.run(t, ffmpeg+" -v error -ss 2 -i ../examples/spotter/clip.mp4 -frames:v 1 frame.png")
	if said := r.run(t, "python3 hide.py frame.png"); !regexp.MustCompile(`^frame.png has [3-9] boxes\n$`).MatchString(
		said) {
		t.Error(said)
	}
	if at := differ(r.picture(t, "hidden.png"), r.picture(t, "frame.png")); at.Empty() {
		t.Error("no box of the frame is filled")
	}
}

// spot is where the picture of the recipe is bright.
var spot = image.Rect(160, 80, 320, 240)

func writeSpot(t *testing.T, r *recipe) {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 640, 480))
	draw.Draw(img, img.Bounds(), image.NewUniform(color.RGBA{40, 20, 60, 255}), image.Point{}, draw.Src)
	draw.Draw(img, spot, image.White, image.Point{}, draw.Src)
	var file bytes.Buffer
	if err := png.Encode(&file, img); err != nil {
		t.Fatal(err)
	}
	r.write(t, "in.jpg", file.String())
}

// checkAnswer checks the files written by curl: the class's picture is gray, at both addresses, and the graph's
// picture has a red line around the bright part.
func checkAnswer(t *testing.T, r *recipe) {
	gray, isGray := r.picture(t, "gray.png").(*image.Gray)
	if !isGray || gray.Bounds() != image.Rect(0, 0, 640, 480) || gray.GrayAt(spot.Min.X, spot.Min.Y).Y != 255 ||
		gray.GrayAt(0, 0).Y > 60 {
		t.Errorf("gray.png is a %T of %v", r.picture(t, "gray.png"), r.picture(t, "gray.png").Bounds())
	}
	if r.read(t, "same.png") != r.read(t, "gray.png") {
		t.Error("the model's answer is another file than the route's")
	}
	marked, red := r.picture(t, "marked.png"), color.RGBA{255, 0, 0, 255}
	for at, want := range map[image.Point]bool{spot.Min: true, {X: spot.Min.X + 80, Y: spot.Min.Y}: true,
		{X: spot.Max.X - 1, Y: spot.Max.Y - 1}: true, {X: 240, Y: 160}: false, {X: 100, Y: 100}: false} {
		if is := color.RGBAModel.Convert(marked.At(at.X, at.Y)) == red; is != want {
			t.Errorf("marked.png is red at %v: %v, want %v", at, is, want)
		}
	}
}

// differ returns the smallest rectangle with all different pixels of two pictures, or both bounds when the sizes
// differ.
func differ(a, b image.Image) (at image.Rectangle) {
	if a.Bounds() != b.Bounds() {
		return a.Bounds().Union(b.Bounds())
	}
	for y := a.Bounds().Min.Y; y < a.Bounds().Max.Y; y++ {
		for x := a.Bounds().Min.X; x < a.Bounds().Max.X; x++ {
			if color.RGBAModel.Convert(a.At(x, y)) != color.RGBAModel.Convert(b.At(x, y)) {
				at = at.Union(image.Rect(x, y, x+1, y+1))
			}
		}
	}
	return at
}

// serve is the command of recipes with a file of configuration.
const serve = "millrace serve --config millrace.yaml"

// restart stops the server and starts the server again.
func (r *recipe) restart(t *testing.T) {
	t.Helper()
	r.programs[serve].stop()
	r.start(t, serve, "is ready")
}

// checkSave checks the remaining files, sends a picture without motion, for which no file is saved, and restarts the
// server: the files of the earlier run count.
func checkSave(t *testing.T, r *recipe) {
	saved := func() []string {
		files, err := filepath.Glob(filepath.Join(r.dir, "saved", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	before := saved()
	for _, file := range before {
		if img := r.picture(t, filepath.Join("saved", filepath.Base(file))); img.Bounds() != image.Rect(0, 0, 320,
			240) {
			t.Errorf("%s has the size %v", file, img.Bounds())
		}
	}
	r.run(t, testneeds.Program(t, "ffmpeg")+" -v error -i ../examples/spotter/clip.mp4 -frames:v 1 still.png")
	r.run(t, "millrace infer watch still.png still.png")
	if after := saved(); !slices.Equal(after, before) {
		t.Errorf("a picture without motion is saved: %v", after)
	}
	r.restart(t)
	r.run(t, "millrace stream ../examples/spotter/clip.mp4 --model watch --policy every --realtime=false --duration 2s")
	after := saved()
	if len(after) != 20 || after[0] <= before[19] {
		t.Errorf("after another run the files are %v, before they were %v", after, before)
	}
}

// checkCount compares the counts of the page with the ground truth of the video.
func checkCount(t *testing.T, r *recipe) {
	var truth struct {
		Frames []struct {
			Objects []struct {
				ID  int
				Box [4]float64
			}
		}
	}
	text, err := os.ReadFile("../examples/spotter/clip.json")
	if err == nil {
		err = json.Unmarshal(text, &truth)
	}
	if err != nil {
		t.Fatal(err)
	}
	var right, left int
	sides := map[int]bool{}
	for _, f := range truth.Frames {
		for _, o := range f.Objects {
			side := (o.Box[0]+o.Box[2])/2 > 160
			if before, seen := sides[o.ID]; seen && before != side && side {
				right++
			} else if seen && before != side {
				left++
			}
			sides[o.ID] = side
		}
	}
	for direction, n := range map[string]int{"in": left, "out": right} { // "in" is to the left of the picture
		if want := fmt.Sprintf("digits  middle  all    %-6s %d ", direction, n); !strings.Contains(r.text, want) {
			t.Errorf("the page does not have the counts of the ground truth: %s", want)
		}
	}
}

// checkMachines streams through nginx while one machine stops in order, comes back, and the other machine is killed.
// Meanwhile requests are answered, and calls of gRPC reach the remaining machine.
func checkMachines(t *testing.T, r *recipe) {
	conn, reply, err := websocket.DefaultDialer.Dial("ws://"+r.addr+":8000/v2/models/echo/stream",
		http.Header{"X-Route": {"door"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, want := reply.Header.Get("X-Machine"), r.machine(t, "door"); got != want {
		t.Errorf("a WebSocket with the header X-Route is at %s, a request with the header at %s", got, want)
	}
	if err := conn.WriteMessage(websocket.BinaryMessage, make([]byte, 100<<10)); err != nil {
		t.Fatal(err)
	}
	if _, text, err := conn.ReadMessage(); err != nil || !strings.HasPrefix(string(text), `{"seq":0,`) {
		t.Errorf("the answer over the WebSocket is %s, %v", text, err)
	}
	follow := r.start(t, "python3 follow.py 1000000", "answered 3\n")
	commands := map[string]string{}
	for command := range r.programs {
		if m := regexp.MustCompile(`--http (\S+)`).FindStringSubmatch(command); m != nil {
			commands[m[1]] = command
		}
	}
	first := commands[reply.Header.Get("X-Machine")]
	if err := r.programs[first].command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		r.machine(t, "")
	}
	follow.wait(t, `(?s)again: draining.*answered`)
	conn.Close()
	r.programs[first].stop()
	client, err := grpc.NewClient("passthrough:///"+r.addr+":8001",
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 20 {
		if _, err := inferencepb.NewGRPCInferenceServiceClient(client).ModelMetadata(t.Context(),
			&inferencepb.ModelMetadataRequest{Name: "echo"}); err != nil {
			t.Fatal(err)
		}
	}
	second := commands[r.machine(t, "door")]
	if second == first {
		t.Fatal("the machine that has ended is in X-Machine")
	}
	r.start(t, first, "is ready")
	for back := time.NewTicker(20 * time.Millisecond); commands[r.machine(t, "door")] != first; {
		select {
		case <-back.C:
		case <-t.Context().Done():
			t.Fatal("the machine does not take part again")
		}
	}
	if err := r.programs[second].command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.programs[second].stop()
	follow.wait(t, fmt.Sprintf(`answered %d\n`, follow.answered()+10))
}

// machine sends a request of 100 KB through nginx, which keeps the body for a retry on the other machine, and returns
// the address of the answering machine.
func (r *recipe) machine(t *testing.T, route string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST",
		"http://"+r.addr+":8000/v2/models/echo/infer?outputs=binary", bytes.NewReader(make([]byte, 100<<10)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	if route != "" {
		req.Header.Set("X-Route", route)
	}
	reply, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if _, err := io.Copy(io.Discard, reply.Body); err != nil || reply.StatusCode != 200 {
		t.Fatalf("a request through nginx: %s, %v", reply.Status, err)
	}
	machines := strings.Split(reply.Header.Get("X-Machine"), ", ")
	return machines[len(machines)-1]
}

// answered returns how many frames follow.py has had answers for.
func (p *program) answered() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		_, _ = fmt.Sscanf(line, "answered %d", &n)
	}
	return n
}
