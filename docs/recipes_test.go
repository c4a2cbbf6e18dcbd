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
	_ "image/jpeg" // decodes the saved pictures
	"image/png"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/internal/onnxfile"
	"millrace/internal/testbuild"
	"millrace/internal/testneeds"
)

// TestRecipes runs each recipe of recipes.md as printed: it writes the files, types the commands, and compares what they print
// with what the page says. Then it runs the recipe's own check.
func TestRecipes(t *testing.T) {
	checks := map[string]func(*testing.T, *recipe){
		"Blur faces":                      checkBlur,
		"Save pictures":                   checkSave,
		"Count with a class":              checkCount,
		"A language model behind a class": checkTokens,
	}
	page, err := os.ReadFile("recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	cmd := exec.Command("go", "build", "-tags", testbuild.Tags(), "-o", filepath.Join(bin, "millrace"), "./cmd/millrace")
	cmd.Dir = testneeds.Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	interpreter := testneeds.Python(t, "numpy", "PIL")
	testneeds.Program(t, "curl")
	path := strings.Join([]string{bin, filepath.Dir(interpreter), "/usr/sbin", os.Getenv("PATH")}, string(os.PathListSeparator))
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		check := checks[title]
		if check == nil {
			t.Errorf("the recipe %q has no check", title)
			continue
		}
		delete(checks, title)
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r := newRecipe(t, text, path)
			if title == "Blur faces" {
				writeFaces(t, r)
			}
			if title != "Count with a class" || !testing.Short() { // the detector takes seconds for the whole video
				r.play(t)
			}
			check(t, r)
		})
	}
	for title := range checks {
		t.Errorf("recipes.md has no recipe %q", title)
	}
}

// recipe is a section of recipes.md, whose files are in dir. In its files and commands, addr is in the place of 127.0.0.1, so
// that the ports can be those of the page.
type recipe struct {
	text, dir, addr string
	env             []string
	programs        map[string]*program // that run in the background, by their commands as printed
}

// newRecipe writes the files of a recipe into a folder beside a link to the folder of examples.
func newRecipe(t *testing.T, text, path string) *recipe {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	above := t.TempDir()
	r := &recipe{dir: filepath.Join(above, "recipe"), programs: map[string]*program{},
		addr: fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))}
	r.text = strings.ReplaceAll(text, "127.0.0.1", r.addr)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MILLRACE_") {
			r.env = append(r.env, v)
		}
	}
	r.env = append(r.env, "PATH="+path, "PYTHONPATH="+filepath.Join(root, "python"), "PYTHONDONTWRITEBYTECODE=1",
		"MILLRACE_HTTP="+r.addr+":8000", "MILLRACE_GRPC="+r.addr+":8001", "MILLRACE_ADDR="+r.addr+":8000")
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "examples"), filepath.Join(above, "examples")); err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```\\w+\n# (\\S+)\n.*?^```$").FindAllStringSubmatch(r.text, -1) {
		_, file, _ := strings.Cut(strings.TrimSuffix(m[0], "```"), "\n")
		r.write(t, m[1], file)
	}
	return r
}

// write writes a file of the recipe.
func (r *recipe) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// play types the commands of the recipe, which are the lines of indented blocks that begin with $. The other lines of a block
// are what the command prints. A line ... stands for any lines.
func (r *recipe) play(t *testing.T) {
	t.Helper()
	for _, block := range regexp.MustCompile(`(?m)^    \$ .*\n(?:(?:    .*)?\n)*`).FindAllString(r.text, -1) {
		block = regexp.MustCompile(`(?m)^    `).ReplaceAllString(block, "")
		for _, typed := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want, _ := strings.Cut(typed, "\n")
			if strings.HasPrefix(command, "millrace serve ") || strings.HasPrefix(command, "nginx ") {
				r.start(t, command)
				continue
			}
			r.compare(t, command, want)
		}
	}
}

// compare types a command and compares what it prints.
func (r *recipe) compare(t *testing.T, command, want string) {
	t.Helper()
	got := r.run(t, command)
	pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), `\.\.\.`, `(?s:.*)`)
	if !regexp.MustCompile(`^` + pattern + `$`).MatchString(strings.TrimSpace(got)) {
		t.Errorf("%s\nprints\n%s\nwant\n%s", command, got, want)
	}
}

// run types a command and returns what it prints.
func (r *recipe) run(t *testing.T, command string) string {
	t.Helper()
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// program is a command that runs in the background.
type program struct {
	command *exec.Cmd
	ended   chan struct{}
	mu      sync.Mutex
	lines   []string
	grown   chan struct{} // is closed when there is another line
}

// start starts a server of the recipe and waits until it is ready. The end of the test stops it.
func (r *recipe) start(t *testing.T, command string) {
	t.Helper()
	cmd := exec.Command("bash", "-c", "exec "+command)
	cmd.Dir, cmd.Env = r.dir, r.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = to, to
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = to.Close()
	p := &program{command: cmd, ended: make(chan struct{}), grown: make(chan struct{})}
	r.programs[command] = p
	go p.read(from)
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s\n%s", command, strings.Join(p.lines, "\n"))
		}
	})
	p.wait(t, "is ready|start worker process ")
}

// read keeps the lines that the program prints, until its end.
func (p *program) read(from io.ReadCloser) {
	defer close(p.ended)
	defer from.Close()
	for lines := bufio.NewScanner(from); lines.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, lines.Text())
		close(p.grown)
		p.grown = make(chan struct{})
		p.mu.Unlock()
	}
}

// wait waits for a line of the program.
func (p *program) wait(t *testing.T, pattern string) {
	t.Helper()
	late := time.After(time.Minute)
	for line := regexp.MustCompile(pattern); ; {
		p.mu.Lock()
		all, grown := strings.Join(p.lines, "\n"), p.grown
		p.mu.Unlock()
		if line.MatchString(all) {
			return
		}
		select {
		case <-grown:
		case <-p.ended:
			t.Fatalf("the program has ended without a line %s:\n%s", pattern, all)
		case <-late:
			t.Fatalf("no line %s in a minute:\n%s", pattern, all)
		}
	}
}

// stop ends the program by SIGTERM and waits for its end. A second call does nothing.
func (p *program) stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	_ = p.command.Wait()
	<-p.ended
}

// checkTokens leaves in the middle of an answer: the server closes the generator, whose rest would take half a minute.
func checkTokens(t *testing.T, r *recipe) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	const body = `{"messages": [{"role": "user", "content": "the text"}], "max_tokens": 4000, "stream": true}`
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+r.addr+":8000/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	reply, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if kind := reply.Header.Get("Content-Type"); reply.StatusCode != 200 || !strings.HasPrefix(kind, "text/event-stream") {
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
	r.programs["millrace serve ./tokens.py"].wait(t, `(?s)the client left.*the client left`) // the first one is curl
	if took := time.Since(left); took > 10*time.Second {
		t.Errorf("the generator was closed after %s", took)
	}
}

// face is what the detector of writeFaces finds in each picture.
var face = image.Rect(80, 60, 160, 120)

// writeFaces writes what the reader has: a detector of the form of UltraFace, which finds the same box in each picture, and a
// picture of 320 x 240 in two colours.
func writeFaces(t *testing.T, r *recipe) {
	t.Helper()
	model := onnxfile.Constant(map[string][]int{"scores": {1, 2}, "boxes": {1, 4}},
		map[string][]float32{"scores": {0, 0.9}, "boxes": {0.25, 0.25, 0.5, 0.5}})
	model.Inputs[0] = onnxfile.Value{Name: "input", Type: onnxfile.Float32, Dims: []any{"N", int64(3), int64(240), int64(320)}}
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

// checkBlur compares the picture that hide.py has written, pixel by pixel: the box has its mean colour, and the rest is as sent.
// With the digits of the page, hide.py finds boxes in a frame of the video, and only the boxes differ.
func checkBlur(t *testing.T, r *recipe) {
	class, err := os.ReadFile("../examples/blur/blur.py")
	if err != nil {
		t.Fatal(err)
	}
	if shown := r.read(t, "blur.py"); shown != string(class) {
		t.Errorf("the page shows another class than examples/blur/blur.py:\n%s", shown)
	}
	hidden, want := r.picture(t, "hidden.png"), people()
	draw.Draw(want, face, image.NewUniform(color.RGBA{155, 255, 255, 255}), image.Point{}, draw.Src)
	if at := differ(hidden, want); !at.Empty() {
		t.Errorf("hidden.png differs in %v from the picture with its face filled", at)
	}
	entries := regexp.MustCompile(`(?ms)^  - name: faces\n.*?(?:^  - |^`+"```"+`)`).FindAllString(r.text, -1)
	if len(entries) != 2 {
		t.Fatalf("the page has %d models faces, want 2", len(entries))
	}
	change := strings.NewReplacer(strings.TrimSuffix(entries[0], "  - "), strings.TrimSuffix(entries[1], "```"), "{input: frame}", "{image: frame}")
	r.write(t, "millrace.yaml", change.Replace(r.read(t, "millrace.yaml")))
	r.restart(t)
	ffmpeg := testneeds.Program(t, "ffmpeg")
	r.run(t, ffmpeg+" -v error -ss 2 -i ../examples/spotter/clip.mp4 -frames:v 1 frame.png")
	if said := r.run(t, "python3 hide.py frame.png"); !regexp.MustCompile(`^frame.png has [3-9] boxes\n$`).MatchString(said) {
		t.Error(said)
	}
	if at := differ(r.picture(t, "hidden.png"), r.picture(t, "frame.png")); at.Empty() {
		t.Error("no box of the frame is filled")
	}
}

// read returns the text of a file of the recipe.
func (r *recipe) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// picture returns a picture that the recipe has written.
func (r *recipe) picture(t *testing.T, name string) image.Image {
	t.Helper()
	img, _, err := image.Decode(strings.NewReader(r.read(t, name)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return img
}

// differ returns the smallest rectangle with all pixels that differ in two pictures, or both when their sizes differ.
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

// restart stops the server and starts it again.
func (r *recipe) restart(t *testing.T) {
	t.Helper()
	r.programs[serve].stop()
	r.start(t, serve)
}

// checkSave looks at the files that are left, sends a picture without motion, of which no file is saved, and starts the server
// again: the files of the earlier run count.
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
		if img := r.picture(t, filepath.Join("saved", filepath.Base(file))); img.Bounds() != image.Rect(0, 0, 320, 240) {
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

// checkCount compares the counts of the page with the ground truth of the video. In the long form, two streams of the video
// have counts of their own.
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
	want := fmt.Sprintf(`"data":[%d]},{"name":"left","datatype":"INT64","shape":[1],"data":[%d]`, right, left)
	if !strings.Contains(r.text, want) {
		t.Errorf("the page does not have the counts of the ground truth: %s", want)
	}
	if testing.Short() {
		return
	}
	settings := r.read(t, "millrace.yaml")
	_, stream, _ := strings.Cut(settings, "streams:\n")
	r.write(t, "millrace.yaml", settings+strings.ReplaceAll(stream, "road", "path"))
	r.programs[serve].stop()
	r.run(t, "rm road.jsonl")
	r.start(t, serve)
	for _, name := range []string{"road", "path"} {
		if got := r.run(t, "tail -n +1 -F "+name+`.jsonl 2> /dev/null | grep -m 1 '"seq":329,'`); !strings.Contains(got, want) {
			t.Errorf("two streams: %s has %s, want %s", name, got, want)
		}
	}
}
