package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"millrace/internal/onnxfile"
	"millrace/internal/testbuild"
	"millrace/internal/testneeds"
)

// TestExamples runs the printed calls in each language against the server with the called models.
func TestExamples(t *testing.T) {
	half := filepath.Join(t.TempDir(), "half.onnx")
	file := onnxfile.Model{
		Inputs:  []onnxfile.Value{{Name: "x", Type: onnxfile.Float32, Dims: []any{1, 4}}},
		Outputs: []onnxfile.Value{{Name: "y", Type: onnxfile.Float16, Dims: []any{1, 4}}},
		Nodes: []onnxfile.Node{{Op: "Cast", Inputs: []string{"x"}, Outputs: []string{"y"},
			Attrs: []onnxfile.Attr{{Name: "to", Value: int64(onnxfile.Float16)}}}},
	}
	if err := os.WriteFile(half, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	_, addr := readyServer(t, onnxRun(t, "serve", "--http", "127.0.0.1:0", "--grpc", "off", "--model", "count=repeat",
		"--model", "half="+half,
		"--config", blurConfig(t), "--model", "sum="+sumClass(t)+",python="+testneeds.Python(t), "--model",
		"shot="+shotClass(t)+",python="+testneeds.Python(t, "numpy", "PIL"), "--model", "same=identity", "--model",
		"eyes=motion", "--model", absolute(t, "bare=../../examples/spotter/spotter.onnx")))
	dir := t.TempDir()
	shot, err := os.ReadFile(picture(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "picture.jpg"), shot, 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range exampleFormats {
		t.Run(format, func(t *testing.T) {
			for _, c := range []struct {
				model string
				calls map[string]int // by format
				want  string         // in the output of each call
			}{
				{"same", map[string]int{"curl": 2, "python": 2, "go": 1, "js": 2}, "x"},
				{"eyes", map[string]int{"curl": 2, "python": 3, "go": 2, "js": 3}, "boxes"},
				{"bare", map[string]int{"curl": 1, "python": 2, "go": 1, "js": 2}, "scores"},
				{"half", map[string]int{"curl": 2, "python": 2, "go": 1, "js": 2}, "y"},
				{"count", map[string]int{"curl": 2, "python": 1, "go": 1, "js": 1}, "OUT"},
				{"sum", map[string]int{"curl": 2, "python": 1, "go": 1, "js": 1}, "unit m"},
				{"blur", map[string]int{"curl": 3, "python": 3, "go": 2, "js": 3}, "output"},
				{"hidden", map[string]int{"curl": 3, "python": 3, "go": 2, "js": 3}, "picture"},
				{"shot", map[string]int{"curl": 2, "python": 3, "go": 2, "js": 3}, "output"},
				{"shots", map[string]int{"curl": 2, "python": 3, "go": 2, "js": 3}, "png"},
			} {
				text, stderr, code := millrace(t, "examples", c.model, "--format", format, "--addr", addr)
				if code != 0 || stderr != "" {
					t.Fatalf("exit status %d\n%s", code, stderr)
				}
				out := runExample(t, format, dir, root, text)
				if strings.HasPrefix(c.model, "shot") {
					checkSaved(t, filepath.Join(dir, c.want+".bin"), text)
				}
				want := c.want + " "
				if c.model == "sum" {
					want = c.want
				} else if format == "curl" {
					want = `"name":"` + c.want + `"`
				}
				if got := strings.Count("\n"+out, want); got != c.calls[format] {
					t.Errorf("%s: %d of %d calls have answered\n%s\n%s", c.model, got, c.calls[format], text, out)
				}
			}
		})
	}
}

// TestExamplesGoModule: calls in Go with the client begin with the go.mod of docs/embed.md.
func TestExamplesGoModule(t *testing.T) {
	page, err := os.ReadFile("../../docs/embed.md")
	if err != nil {
		t.Fatal(err)
	}
	_, module, _ := strings.Cut(string(page), "    module mine\n")
	module, _, found := strings.Cut(module, "\n\nand `cp ../millrace/go.sum . && go build -mod=mod`")
	if !found {
		t.Fatal("docs/embed.md has no go.mod of a program outside of the repository")
	}
	_, addr := serve(t, "--model", "same=identity", "--model", "count=repeat")
	text, stderr, code := millrace(t, "examples", "same", "--format", "go", "--addr", addr)
	comment, _, found := strings.Cut(text, "\npackage main\n")
	if code != 0 || !found {
		t.Fatalf("%s%s", text, stderr)
	}
	for _, want := range append(strings.Split(module, "\n\n"), "cp ../millrace/go.sum . && go run -mod=mod .") {
		if want = "//\t" + strings.TrimSpace(want) + "\n"; !strings.Contains(comment, want) {
			t.Errorf("no %q in\n%s", want, comment)
		}
	}
	if text, _, _ := millrace(t, "examples", "count", "--format", "go", "--addr", addr); !strings.Contains(text,
		"package main\n") || strings.Contains(text, "go.mod") {
		t.Errorf("calls with net/http need no module:\n%s", text)
	}
}

// A printed call refused by the server shows the server's reason.
func TestExamplesThatFail(t *testing.T) {
	_, addr := serve(t, "--model", "shot="+shotClass(t)+",python="+testneeds.Python(t, "numpy", "PIL"))
	for format, program := range map[string]string{"curl": "sh", "python": testneeds.Interpreter,
		"js": testneeds.Program(t, "node")} {
		text, stderr, code := millrace(t, "examples", "shot", "--format", format, "--addr", addr)
		if code != 0 {
			t.Fatal(stderr)
		}
		file := filepath.Join(t.TempDir(), "call.mjs")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "/models/shot/", "/models/none/")),
			0o600); err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(t.Context(), program, file)
		c.Dir = filepath.Dir(file)
		out, err := c.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "Request for unknown model: 'none' is not found") {
			t.Errorf("%s: %v\n%s", format, err, out)
		}
	}
}

// The commands have a picture for each step of a graph whose steps need several sizes.
func TestTakesOfGraph(t *testing.T) {
	t.Parallel()
	in := func(c *exec.Cmd) *exec.Cmd {
		c.Dir = absolute(t, filepath.Join("..", "..", "examples", "graph"))
		return c
	}
	const takes = "a picture as frame: JPEG, PNG or WebP of any size; step digits gets it as RGB of 320x240; step " +
		"colour gets each crop as RGB of 16x16\n"
	if out, stderr, code := finish(t, in(onnxRun(t, "check", "--config", "config.yaml"))); code != 0 ||
		strings.Count(out, "takes "+takes) != 1 {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	_, addr := readyServer(t, in(onnxRun(t, "serve", "--http", "127.0.0.1:0", "--grpc", "off", "--config",
		"config.yaml")))
	if out, stderr, code := millrace(t, "models", "show", "traffic", "--addr", addr); code != 0 ||
		!strings.Contains(out, takes) {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	steps := `"steps": [
      {
        "step": "digits",
        "width": 320,
        "height": 240,
        "color": "RGB"
      },
      {
        "step": "colour",
        "width": 16,
        "height": 16,
        "color": "RGB",
        "crop": true
      }
    ]`
	if out, _, _ := millrace(t, "models", "show", "traffic", "--json", "--addr", addr); !strings.Contains(out, steps) {
		t.Errorf("%s", out)
	}
}

// The commands and the OpenAPI document describe the picture taken by a class and its optional inputs. A class
// without hints declares no inputs.
func TestTakes(t *testing.T) {
	python := ",python=" + testneeds.Python(t, "numpy", "PIL")
	bare := filepath.Join(t.TempDir(), "bare.py")
	if err := os.WriteFile(bare, []byte("def infer(x, y): ...\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	models := []string{"--model", "shot=" + shotClass(t) + python, "--model", "bare=" + bare + python, "--model",
		"same=identity", "--model", "eyes=motion"}
	_, addr := serve(t, models...)
	const shot, eyes = "a picture as image: JPEG, PNG or WebP of any size, which becomes RGB of 32x24\n",
		"a picture as image: JPEG, PNG or WebP of any size, which becomes GRAY of 320x240\n"
	for model, want := range map[string][]string{
		"shot": {"takes   " + shot, "least   FP64   [1]  may be left out\n"},
		"eyes": {eyes},
		"bare": {"takes  any tensors: the model declares no inputs\n"},
		"same": {"takes  any tensors: the model declares no inputs\n"},
	} {
		out, stderr, code := millrace(t, "models", "show", model, "--addr", addr)
		for _, w := range want {
			if code != 0 || !strings.Contains(out, w) {
				t.Errorf("%s\n%s, want %s", out, stderr, w)
			}
		}
	}
	wantJSON := `"picture": {
    "input": "image",
    "width": 32,
    "height": 24,
    "color": "RGB",
    "alone": true,
    "whole": true
  },
  "optional": [
    "least"
  ]`
	if out, _, _ := millrace(t, "models", "show", "shot", "--json", "--addr", addr); !strings.Contains(out, wantJSON) {
		t.Errorf("%s", out)
	}
	out, stderr, code := millrace(t, append([]string{"check"}, models...)...)
	if code != 0 || strings.Count(out, "takes "+shot) != 1 || strings.Count(out, "takes "+eyes) != 1 ||
		!strings.Contains(out, "input least FP64 [1], which may be left out\n") ||
		strings.Count(out, "declares no inputs, and takes any tensors\n") != 2 {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	text, _, _ := millrace(t, "api-schema", "--addr", addr)
	type body struct {
		Examples map[string]struct{ Summary string }
	}
	var document struct {
		Paths map[string]struct {
			Post struct {
				RequestBody struct{ Content map[string]body }
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	content := func(model string) map[string]body {
		return document.Paths["/v2/models/"+model+"/infer"].Post.RequestBody.Content
	}
	if got := content("same")["application/json"].Examples["tensors"]; !strings.Contains(got.Summary,
		"the model declares no inputs") {
		t.Errorf("%+v", got)
	}
	if got := content("bare")["application/json"].Examples; len(got) != 0 {
		t.Errorf("a class without hints has the example %+v", got)
	}
	_, picture := content("shot")["image/jpeg"]
	if _, bare := content("bare")["image/jpeg"]; !picture || bare {
		t.Errorf("pictures: %v of a class that takes one, %v of one that does not", picture, bare)
	}
	if out, _, _ := millrace(t, "examples", "bare", "--addr", addr); strings.Contains(out, "/v2/models/") ||
		!strings.Contains(out, "/apps/bare/infer") {
		t.Errorf("%s", out)
	}
	if out, _, _ := millrace(t, "examples", "same", "--addr", addr); !strings.HasPrefix(out,
		"# The model declares no inputs: the tensor x is an example.\n") {
		t.Errorf("%s", out)
	}
}

// blurConfig returns the configuration of examples/blur with the interpreter of the tests.
func blurConfig(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/blur/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	python, folder := testneeds.Python(t, "numpy", "PIL"), absolute(t, "../../examples/blur")
	for _, name := range []string{"bright", "blur"} {
		text = bytes.Replace(text, []byte("source: "+name+".py"),
			[]byte("source: "+folder+"/"+name+".py\n    python: "+python), 1)
	}
	text = append(text, "  - name: shots\n    source: graph\n    steps:\n      - model: shot\n        input: "+
		"{image: frame}\n        output: {output: png}\n"...)
	file := filepath.Join(t.TempDir(), "blur.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// sumClass returns a Python class whose inputs are JSON of several types.
func sumClass(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sum.py")
	text := `
import dataclasses, enum, typing

class Unit(enum.Enum):
    METRE = "m"

@dataclasses.dataclass
class Part:
    length: float
    names: list[str]

class Sum:
    def infer(self, parts: list[Part], unit: Unit, note: str, digits: typing.Optional[int] = None, deep: bool = False) -> dict:
        assert isinstance(unit, Unit) and isinstance(parts[0], Part)
        return {"sum": sum(p.length for p in parts), "text": "unit " + unit.value}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// shotClass returns a Python class whose output JSON cannot represent.
func shotClass(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shot.py")
	text := `
import millrace

class Shot:
    def infer(self, image: millrace.Image[32, 24], least: float = 0.5) -> bytes:
        assert least == 0.5
        return b"\xff%d" % image.shape[1]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// checkSaved checks and removes the output saved by a call.
func checkSaved(t *testing.T, file, text string) {
	t.Helper()
	got, err := os.ReadFile(file)
	if err != nil || string(got) != "\xff32" {
		t.Errorf("the saved output is %q, %v\n%s", got, err, text)
	}
	_ = os.Remove(file)
}

// runExample runs a printed program and returns the program's output.
func runExample(t *testing.T, format, dir, root, text string) string {
	t.Helper()
	file := filepath.Join(dir, "call."+map[string]string{"curl": "sh", "python": "py", "go": "go", "js": "mjs"}[format])
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), map[string]string{"curl": "sh", "python": testneeds.Interpreter,
		"js": testneeds.Program(t, "node")}[format], file)
	switch format {
	case "curl":
		c = exec.CommandContext(t.Context(), "sh", "-e", file)
	case "go": // as a package of this module, whose files are elsewhere
		overlay := filepath.Join(dir, "overlay.json")
		replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, "cmd", "call",
			"main.go"): file}})
		if err == nil {
			err = os.WriteFile(overlay, replace, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(dir, "call")
		build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-tags", testbuild.Tags(),
			"-overlay", overlay, "-o", program, "./cmd/call")
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, out, text)
		}
		c = exec.CommandContext(t.Context(), program)
	}
	c.Dir, c.WaitDelay = dir, time.Minute
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, text)
	}
	return string(out)
}

// A server and its configuration yield the same document. The document of a model has every part to which the
// document refers, and no part of another model. (A library that checks the document, as server/tests/service does,
// would compile schemas at each start of this test binary.)
func TestAPISchema(t *testing.T) {
	file := filepath.Join(t.TempDir(), "millrace.yaml")
	if err := os.WriteFile(file, []byte("models: [{name: eyes, source: motion}, {name: same, source: identity}]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	_, addr := serve(t, "--config", file)
	running, stderr, code := millrace(t, "api-schema", "--addr", addr)
	if code != 0 || stderr != "" {
		t.Fatalf("exit status %d\n%s", code, stderr)
	}
	configured, stderr, code := millrace(t, "api-schema", "--config", file)
	if code != 0 || running != configured {
		t.Errorf("exit status %d: the documents differ\n%s", code, stderr)
	}
	apart := filepath.Join(t.TempDir(), "apart.yaml")
	// where nothing may listen
	if err := os.WriteFile(apart, []byte("metrics: {address: \"127.0.0.1:9\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, stderr, code := millrace(t, "api-schema", "--config", apart); code != 0 ||
		strings.Contains(text, `"/metrics"`) || !strings.Contains(configured, `"/metrics"`) {
		t.Errorf("exit status %d: metrics are described for an address that has none\n%s", code, stderr)
	}
	out := filepath.Join(t.TempDir(), "eyes.json")
	if text, stderr, code := millrace(t, "api-schema", "--addr", addr, "--model", "eyes", "--out", out); code != 0 ||
		text != "" {
		t.Fatalf("exit status %d, %q\n%s", code, text, stderr)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	paths, _ := document["paths"].(map[string]any)
	if len(paths) != 1 || paths["/v2/models/eyes/infer"] == nil {
		t.Errorf("%v", paths)
	}
	references := regexp.MustCompile(`"\$ref": ?"#/([^"]*)"`).FindAllStringSubmatch(string(text), -1)
	if len(references) == 0 || len(references) != strings.Count(string(text), `"$ref"`) {
		t.Errorf("%d references inside the document, of %d", len(references), strings.Count(string(text), `"$ref"`))
	}
	for _, r := range references {
		var at any = document
		for _, key := range strings.Split(r[1], "/") {
			in, _ := at.(map[string]any)
			at = in[key]
		}
		if at == nil {
			t.Errorf("%s refers to nothing", r[0])
		}
	}
	if strings.Contains(string(text), "same") {
		t.Error("there is something of another model")
	}
}
