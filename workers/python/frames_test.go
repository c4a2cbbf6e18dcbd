package python

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/testneeds"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/graph"
)

// open opens a stream and returns a function that sends a frame and returns its next result.
func (r *rig) open(g *workers.Group) func(f *stream.Frame) *stream.Result {
	r.Helper()
	s := sink{make(chan *stream.Result, 16), make(chan stream.CloseReason, 1)}
	st, err := g.Open(stream.Options{Policy: stream.Policy{Mode: stream.Every}}, s)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		st.Close(stream.ByClient)
		<-s.done
	})
	return func(f *stream.Frame) *stream.Result {
		r.Helper()
		if f != nil {
			if err := st.Submit(*f); err != nil {
				r.Fatal(err)
			}
		}
		select {
		case res := <-s.results:
			r.Cleanup(res.Release)
			if res.Err != nil {
				r.Fatal(res.Err)
			}
			return res
		case <-time.After(time.Minute):
			r.Fatal("there was no result")
			return nil
		}
	}
}

// TestState runs frames of two streams: each has a state of its own, which ends with it.
func TestState(t *testing.T) {
	r := newRig(t)
	g := r.mustLoad(r.write("service.py", "def infer(data: bytes, state: dict) -> str:\n    state['all'] = "+
		"state.get('all', '') + data.decode()\n    return state['all']\n"), nil)
	a, b := r.open(g), r.open(g)
	var got []string
	for i, send := range []func(*stream.Frame) *stream.Result{a, b, a, b, r.open(g)} {
		res := send(&stream.Frame{Codec: stream.Opaque, Payload: []byte{byte('a' + i)}})
		got = append(got, string(res.Outputs[0].Data[4:]))
	}
	if fmt.Sprint(got) != "[a b ac bd e]" {
		t.Error(got)
	}
}

// TestParts gets the answers of a generator one by one.
func TestParts(t *testing.T) {
	r := newRig(t)
	next := r.open(r.mustLoad(r.write("service.py",
		"def infer(n: str):\n    for i in range(int(n)):\n        yield i\n"), nil))
	f := &stream.Frame{Codec: stream.Opaque, Payload: []byte("3")}
	for i := range 3 {
		res := next(f)
		if f = nil; !res.Partial || binary.LittleEndian.Uint64(res.Outputs[0].Data) != uint64(i) {
			t.Fatalf("part %d is %+v", i, res.Outputs)
		}
	}
	if res := next(nil); res.Partial || res.Outcome != stream.Answered {
		t.Errorf("the end is %+v", res)
	}
}

// TestWindow gives a function windows of a stream of samples.
func TestWindow(t *testing.T) {
	r := newRig(t)
	source := r.write("service.py", "from millrace import Tensor\ndef infer(x: Tensor['FP32', -1]) -> "+
		"Tensor['FP32', 2]:\n    return [x.shape[0], x.sum()]\n")
	cfg := workers.Config{Name: "m", Source: source, Kind: "python", Params: stream.Params{"python": interpreter},
		Window: workers.Window{Length: 4, Hop: 2}}
	if _, err := r.m.LoadConfig(t.Context(), cfg, true); err != nil {
		t.Fatal(err)
	}
	g, err := r.m.Group("m", "")
	if err != nil {
		t.Fatal(err)
	}
	next := r.open(g)
	var data []byte
	for i := range 6 {
		data = stream.AppendFloat32(data, float32(i))
	}
	for i, want := range []float32{0 + 1 + 2 + 3, 2 + 3 + 4 + 5} {
		f := &stream.Frame{Codec: stream.Tensors,
			Inputs: []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{2}, Data: data[i*16 : i*16+8]}}}
		if i == 0 {
			f.Inputs[0].Shape, f.Inputs[0].Data = []int{4}, data[:16]
		}
		if got := next(f).Outputs[0].Float32s(); len(got) != 2 || got[0] != 4 || got[1] != want {
			t.Errorf("window %d: %v, want 4 and %v", i, got, want)
		}
	}
}

// TestPictures gives a function a picture in each form in which requests have pictures, at the function's
// size and in its own size, alone and with arguments that have defaults: the box and the key point that the
// function finds are in pixels of the picture as sent.
func TestPictures(t *testing.T) {
	testneeds.Python(t, "numpy")
	frames := bright(t)
	// how many tensors it takes; the server fills the one input of the others
	for takes, tensors := range map[string]int{
		"picture: Image[80, 80]": 0, "picture: Image": 1, "picture: Image[80, 80, 'GRAY']": 0,
		"picture: Image[80, 80], least: float = 128":                             2,
		"picture: Image, least: float = 128":                                     2,
		"picture: Image[80, 80], mask: Image[40, 40] = None, least: float = 128": 2,
		"picture: Optional[Image[80, 80]] = None, least: float = 128":            2,
		"picture: Image[80, 80], *, least: float = 128":                          0,
		"picture: Image[80, 80], context, **more":                                2,
		"picture: Batch[Image[80, 80]], least: Batch[float] = 128":               2,
	} {
		t.Run(takes, func(t *testing.T) {
			r := newRig(t)
			g := r.mustLoad(r.write("service.py", strings.ReplaceAll(finder, "TAKES", takes)), nil)
			for name, f := range frames {
				if len(f.Inputs) <= tensors {
					checkBright(t, name, r.run(g, f))
				}
			}
		})
	}
}

// TestPicturesOfCalls calls the route of a class with a picture in each form in which bodies have pictures. The
// server decodes them: the class gets the pixels that it gets of a frame, boxes are in pixels of the picture as sent,
// and no package for pictures is needed.
func TestPicturesOfCalls(t *testing.T) {
	testneeds.Python(t, "numpy")
	frame := bright(t)["JPEG"]
	for takes, params := range map[string]stream.Params{
		"Image[80, 60]": nil, "Image": nil, "Image[80, 60, 'GRAY']": nil, "Batch[Image[80, 60]]": nil,
		"Optional[Image[80, 60, 'BGR']] = None": nil, "Batch[Image]": nil,
	} {
		t.Run(takes, func(t *testing.T) {
			r := newRig(t)
			g := r.mustLoad(r.write("service.py", strings.ReplaceAll(hashing, "TAKES", takes)), params)
			res := r.run(g, frame)
			if res.Err != nil {
				t.Fatal(res.Err)
			}
			want := string(res.Outputs[0].Data[4:])
			res.Release()
			if !strings.Contains(want, `"boxes":[[0.0,0.0,160.0,80.0]]`) {
				t.Errorf("the frame's result is %s", want)
			}
			form := "--b\r\nContent-Disposition: form-data; name=picture; filename=x.jpg\r\n\r\n" +
				string(frame.Payload) + "\r\n--b--\r\n"
			for kind, body := range map[string]string{
				"image/jpeg": string(frame.Payload), "application/octet-stream": string(frame.Payload),
				"multipart/form-data; boundary=b": form,
				"application/json": `{"picture":"` + base64.StdEncoding.EncodeToString(frame.Payload) +
					`"}`,
			} {
				if got := r.call(g, kind, body); got != want {
					t.Errorf("%s: %s, want %s", kind, got, want)
				}
			}
			for kind, body := range map[string]string{"image/png": "no picture",
				"application/json": `{"picture":"bm8gcGljdHVyZQ=="}`, "image/jpeg": string(frame.Payload[:200])} {
				if got := r.call(g, kind, body); !strings.Contains(got, `is no picture that can be decoded: `) ||
					!strings.Contains(got, `"error":"body`) {
					t.Errorf("%s of a body that is no picture: %s", kind, got)
				}
			}
		})
	}
}

// hashing returns what it gets, and a box around a quarter of it.
const hashing = `
import hashlib, sys
from typing import Any, Optional
sys.modules["PIL"] = sys.modules["cv2"] = None
from millrace import Batch, Boxes, Image
def one(picture):
    height, width, _ = picture.shape
    return {"shape": picture.shape, "hash": hashlib.sha256(picture.tobytes()).hexdigest(), "found": Boxes([[0, 0, width / 2, height / 2]])}
def infer(picture: TAKES) -> Any:
    return [one(p) for p in picture] if isinstance(picture, list) or picture.ndim == 4 else one(picture)
`

// call sends a call of the route infer, and returns the body of the answer.
func (r *rig) call(g *workers.Group, kind, body string) string {
	r.Helper()
	res := r.run(g, stream.Frame{Codec: stream.Opaque, Payload: []byte(body),
		Call: &stream.Call{Endpoint: "infer", Method: "POST", Path: "/infer", ContentType: kind}})
	if res.Err != nil {
		return res.Err.Error()
	}
	defer res.Release()
	return string(res.Outputs[0].Data[4:])
}

// finder finds what is bright in a picture.
const finder = `
from typing import Optional
import numpy as np
from millrace import Batch, Boxes, Image
def find(picture, least):
    rows, columns = np.nonzero(picture[..., 0] > least)
    box = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    return Boxes([box], keypoints=[[[*box[:2], 0.5]]])
def infer(TAKES) -> Boxes["keypoints"]:
    least = locals().get("least", 128)
    if isinstance(least, list):
        return [find(p, v) for p, v in zip(picture, least)]
    return find(picture, least)
`

// bright returns frames of a picture whose part from 64, 32 to 128, 96 is bright.
func bright(t *testing.T) map[string]stream.Frame {
	t.Helper()
	picture := image.NewRGBA(image.Rect(0, 0, 320, 160))
	draw.Draw(picture, image.Rect(64, 32, 128, 96), image.NewUniform(color.White), image.Point{}, draw.Src)
	var file bytes.Buffer
	if err := jpeg.Encode(&file, picture, &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	var rgb []byte
	for i := 0; i < len(picture.Pix); i += 4 {
		rgb = append(rgb, picture.Pix[i:i+3]...)
	}
	element := func(data []byte) stream.Tensor {
		data = append(binary.LittleEndian.AppendUint32(nil, uint32(len(data))), data...)
		return stream.Tensor{Name: "picture", Datatype: stream.Bytes, Shape: []int{1}, Data: data}
	}
	least := stream.Tensor{Name: "least", Datatype: stream.Float64, Shape: []int{1},
		Data: binary.LittleEndian.AppendUint64(nil, math.Float64bits(100))}
	inBase64 := []byte(base64.StdEncoding.EncodeToString(file.Bytes()))
	return map[string]stream.Frame{
		"JPEG":            {Codec: stream.JPEG, Payload: file.Bytes()},
		"RGB24":           {Codec: stream.RGB24, Width: 320, Height: 160, Payload: rgb},
		"BYTES":           {Codec: stream.Tensors, Inputs: []stream.Tensor{element(file.Bytes())}},
		"BYTES in base64": {Codec: stream.Tensors, Inputs: []stream.Tensor{element(inBase64)}},
		"two tensors":     {Codec: stream.Tensors, Inputs: []stream.Tensor{element(file.Bytes()), least}},
	}
}

// checkBright checks that a result has the box and the key point of the bright part.
func checkBright(t *testing.T, what string, res *stream.Result) {
	t.Helper()
	defer res.Release()
	if res.Err != nil {
		t.Errorf("%s: %v", what, res.Err)
		return
	}
	for name, want := range map[string][]float64{"boxes": {64, 32, 128, 96}, "keypoints": {64, 32, 0.5}} {
		i := slices.IndexFunc(res.Outputs, func(o stream.Tensor) bool { return o.Name == name })
		if i < 0 {
			t.Errorf("%s: there are no %s", what, name)
			continue
		}
		got := res.Outputs[i].Float32s()
		for k := range want {
			if len(got) != len(want) || math.Abs(float64(got[k])-want[k]) > 4 {
				t.Errorf("%s: %s are %v, want %v", what, name, got, want)
				break
			}
		}
	}
}

// TestStepWithoutHint: a graph that gives a tensor to an argument without a type hint is refused with the hint that
// fits the tensor.
func TestStepWithoutHint(t *testing.T) {
	testneeds.Python(t, "numpy")
	r := newRig(t)
	r.mustLoad(r.write("service.py", "import millrace\ndef infer(scores: millrace.Tensor['FP32', -1], labels, "+
		"boxes): ...\n"), nil)
	r.write("free.py", "def infer(labels): ...\n")
	if _, err := r.m.LoadConfig(t.Context(), workers.Config{Name: "free", Source: filepath.Join(r.dir, "free.py"),
		Kind: "python"}, true); err != nil {
		t.Fatal(err)
	}
	r.write("found.py", `import millrace
def infer(image: millrace.Image[8, 8]) -> millrace.Boxes: ...
`)
	if _, err := r.m.LoadConfig(t.Context(), workers.Config{Name: "found", Source: filepath.Join(r.dir, "found.py"),
		Kind: "python"}, true); err != nil {
		t.Fatal(err)
	}
	r.write("drawer.py", "import millrace\ndef infer(image: millrace.Image, found: millrace.Boxes) -> bytes: ...\n")
	if _, err := r.m.LoadConfig(t.Context(), workers.Config{Name: "drawer", Source: filepath.Join(r.dir, "drawer.py"),
		Kind: "python"}, true); err != nil {
		t.Fatal(err)
	}
	const boxes = ". If found is the argument with the type millrace.Boxes, its inputs are boxes, scores, classes, " +
		"labels, ids, keypoints: " +
		"write boxes: boxes in place of found: %s, and the other inputs likewise. Any other argument needs a type " +
		"hint with its datatype and shape"
	for _, c := range []struct {
		step graph.Step
		want string
	}{
		{graph.Step{Model: "drawer", Input: map[string]string{"image": "image", "found": "boxes"}},
			fmt.Sprintf(boxes, "boxes")},
		{graph.Step{Model: "drawer", Input: map[string]string{"image": "image", "found": "scores"}},
			fmt.Sprintf(boxes, "scores")},
		{graph.Step{Model: "m", Input: map[string]string{"labels": "labels"}}, "labels: is not an input of model m, " +
			"which has scores. If labels is an argument of the class, give it a type hint with its datatype and " +
			"shape: labels: typing.List[str]"},
		{graph.Step{Model: "m", Input: map[string]string{"boxes": "boxes"}}, `boxes: millrace.Tensor["FP32", -1, 4]`},
		{graph.Step{Model: "m", Input: map[string]string{"labels": "other"}}, `labels: millrace.Tensor["FP32", -1]`},
		{graph.Step{Model: "free", Output: map[string]string{"output": "x"}}, `so name them, as INPUT: TENSOR, or ` +
			`give the arguments of the class type hints with a datatype and shape, such as millrace.Tensor["FP32", -1]`},
	} {
		set := graph.Settings{Steps: []graph.Step{{Model: "found"}, c.step}}
		set.Steps[1].Output = map[string]string{"output": "out"}
		_, err := r.m.LoadConfig(t.Context(), workers.Config{Name: "g", Kind: "graph", Params: set.Params()}, true)
		if err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// TestStep runs a function with arguments that have defaults as the step of a graph: requests leave the
// arguments out, and boxes in a picture of another size are in pixels of the picture as sent.
func TestStep(t *testing.T) {
	testneeds.Python(t, "numpy")
	steps := func(input map[string]string, output map[string]string) stream.Params {
		return (&graph.Settings{Steps: []graph.Step{{Model: "m", Input: input, Output: output}}}).Params()
	}
	load := func(r *rig, name string, params stream.Params) (*workers.Group, error) {
		if _, err := r.m.LoadConfig(t.Context(), workers.Config{Name: name, Kind: "graph", Params: params},
			true); err != nil {
			return nil, err
		}
		return r.m.Group(name, "")
	}
	for _, takes := range []string{"picture: Image[80, 80], least: float = 128", "picture: Image, least: float = 128",
		"picture: Image[80, 80], mask: Image = None"} {
		t.Run(takes, func(t *testing.T) {
			r := newRig(t)
			r.mustLoad(r.write("service.py", strings.ReplaceAll(finder, "TAKES", takes)), nil)
			g, err := load(r, "g", steps(map[string]string{"picture": "frame"}, nil))
			if err != nil {
				t.Fatal(takes, err)
			}
			for name, f := range bright(t) {
				if f.Codec != stream.Tensors {
					checkBright(t, takes+" of "+name, r.run(g, f))
				}
			}
			_, err = load(r, "h", steps(map[string]string{"picture": "frame", "least": "least"}, nil))
			if strings.Contains(takes, "least") &&
				(err == nil || !strings.Contains(err.Error(), "The input has a default: leave it out of `input`")) {
				t.Errorf("a graph with the input least: %v", err)
			}
		})
	}
	// Without a picture, requests of the graph may have the input, and may leave it out.
	r := newRig(t)
	r.mustLoad(r.write("service.py", "from millrace import Tensor\ndef infer(x: Tensor['FP32', 1], gain: float = 2) "+
		"-> Tensor['FP32', 1]:\n    return x * gain\n"), nil)
	g, err := load(r, "g", steps(nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	x := stream.Tensor{Name: "x", Datatype: stream.Float32, Shape: []int{1, 1}, Data: stream.AppendFloat32(nil, 3)}
	gain := stream.Tensor{Name: "gain", Datatype: stream.Float64, Shape: []int{1, 1},
		Data: binary.LittleEndian.AppendUint64(nil, math.Float64bits(5))}
	for _, c := range []struct {
		inputs []stream.Tensor
		want   float32
	}{{[]stream.Tensor{x}, 6}, {[]stream.Tensor{x, gain}, 15}, {[]stream.Tensor{gain, x}, 15}} {
		res := r.run(g, stream.Frame{Codec: stream.Tensors, Inputs: c.inputs})
		if res.Err != nil || res.Outputs[0].Float32s()[0] != c.want {
			t.Errorf("%d inputs: %v, %v, want %v", len(c.inputs), res.Outputs, res.Err, c.want)
		}
		res.Release()
	}
	for _, inputs := range [][]stream.Tensor{{gain},
		{x, {Name: "y", Datatype: stream.Float32, Shape: []int{1, 1}, Data: x.Data}}} {
		if res := r.run(g, stream.Frame{Codec: stream.Tensors, Inputs: inputs}); res.Err == nil {
			t.Errorf("inputs %v are taken: %v", inputs, res.Outputs)
		}
	}
}

// TestVirtualEnvironment runs a program with the packages of a virtual environment.
func TestVirtualEnvironment(t *testing.T) {
	r := newRig(t)
	venv := filepath.Join(r.dir, "venv")
	if out, err := exec.Command(interpreter, "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(venv, "lib", "python*", "site-packages"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	name, err := filepath.Rel(r.dir, found[0])
	if err != nil {
		t.Fatal(err)
	}
	r.write(filepath.Join(name, "only_there.py"), "x = 'there'\n")
	g := r.mustLoad(r.write("service.py", "import only_there, os\ndef infer(x: str) -> str:\n    return "+
		"only_there.x + os.environ['VIRTUAL_ENV']\n"), stream.Params{"python": nil, "venv": venv})
	if got := r.text(g, "x"); got != "there"+venv {
		t.Error(got)
	}
}

// TestBoxesArgument: an argument of the type Boxes gets the boxes, scores, classes and labels of other steps of a
// graph, in pixels of the picture that the function gets; without a picture, and in JSON, as they were sent.
func TestBoxesArgument(t *testing.T) {
	testneeds.Python(t, "numpy")
	const finds = `
import millrace
def infer(image: millrace.Image[80, 80]) -> millrace.Boxes:
    return millrace.Boxes([[10, 20, 30, 40], [0, 0, 8, 8]], [0.5, 0.25], labels=["cat", "dog"])
`
	const takes = `
import millrace
from typing import Any, Optional
def infer(TAKES) -> str:
    return str([[float(v) for v in b] for b in found.boxes]) + str([float(s) for s in found.scores]) + str(found.labels) if found is not None else "none"
`
	for hints, want := range map[string]string{
		"image: millrace.Image[80, 80], found: millrace.Boxes": "[[10.0, 20.0, 30.0, 40.0], [0.0, " +
			"0.0, 8.0, 8.0]]",
		"image: millrace.Image, found: millrace.Boxes": "[[40.0, 40.0, 120.0, 80.0], [0.0, " +
			"0.0, 32.0, 16.0]]",
		"found: millrace.Boxes": "[[40.0, 40.0, 120.0, 80.0], [0.0, " +
			"0.0, 32.0, 16.0]]",
		"image: millrace.Image[40, 80], found: Optional[millrace.Boxes] = None": "[[5.0, 20.0, 15.0, 40.0], [0.0, 0.0, 4.0, 8.0]]",
	} {
		t.Run(hints, func(t *testing.T) {
			r := newRig(t)
			g := r.mustLoad(r.write("service.py", strings.ReplaceAll(takes, "TAKES", hints)), nil)
			r.write("finds.py", finds)
			if _, err := r.m.LoadConfig(t.Context(),
				workers.Config{Name: "finds", Source: filepath.Join(r.dir, "finds.py"), Kind: "python",
					Params: stream.Params{"python": interpreter}}, true); err != nil {
				t.Fatal(err)
			}
			input := map[string]string{"boxes": "boxes", "scores": "scores", "labels": "labels"}
			if strings.Contains(hints, "image") {
				input["image"] = "frame"
			}
			set := graph.Settings{Steps: []graph.Step{{Model: "finds", Input: map[string]string{"image": "frame"}},
				{Model: "m", Input: input, Output: map[string]string{"output": "told"}}}, Outputs: []string{"told"}}
			if _, err := r.m.LoadConfig(t.Context(), workers.Config{Name: "g", Kind: "graph", Params: set.Params()},
				true); err != nil {
				t.Fatal(err)
			}
			both, err := r.m.Group("g", "")
			if err != nil {
				t.Fatal(err)
			}
			want += "[0.5, 0.25]['cat', 'dog']"
			res := r.run(both, bright(t)["JPEG"])
			if res.Err != nil {
				t.Fatal(res.Err)
			}
			if got := string(res.Outputs[0].Data[4:]); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			res.Release()
			if !strings.Contains(hints, "image") {
				if got := r.call(g, "application/json",
					`{"found":{"boxes":[[1,2,3,4]],"scores":[1],"labels":["x"]}}`); got !=
					`"[[1.0, 2.0, 3.0, 4.0]][1.0]['x']"` {
					t.Error(got)
				}
				for body, says := range map[string]string{
					`{"found":{"boxes":[1,2,3,4]}}`: "body.found: Boxes: boxes must be [n, 4]",
					`{"found":{"box":[]}}`:          "body.found.box: is not a member of boxes",
					`{"found":{}}`:                  "body.found.boxes: is missing"} {
					if got := r.call(g, "application/json", body); !strings.Contains(got, says) {
						t.Errorf("%s: %s", body, got)
					}
				}
				scores := stream.Tensor{Name: "scores", Datatype: stream.Float32, Shape: []int{1},
					Data: stream.AppendFloat32(nil, 1)}
				if res := r.run(g, stream.Frame{Codec: stream.Tensors,
					Inputs: []stream.Tensor{scores}}); res.Err == nil ||
					!strings.Contains(res.Err.Error(), "inputs.boxes: is missing") {
					t.Errorf("scores alone: %v", res.Err)
				}
			}
		})
	}
	for hints, says := range map[string]string{
		"found: millrace.Boxes, other: millrace.Boxes": "other has the type Boxes, which one argument",
		"found: millrace.Boxes, scores: millrace.Tensor['FP32', -1]": "leave out the argument scores, and use " +
			"found.scores",
		"found: millrace.Batch[millrace.Boxes]": "of a function for one request",
	} {
		r := newRig(t)
		if _, err := r.load(r.write("service.py", strings.ReplaceAll(takes, "TAKES", hints)), nil); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", hints, err)
		}
	}
}

// TestPictureWithoutHint: a picture file for an argument of another type is refused with the hint to write.
func TestPictureWithoutHint(t *testing.T) {
	testneeds.Python(t, "numpy")
	file := bright(t)["JPEG"].Payload
	for _, hint := range []string{": np.ndarray", "", ": str", ": dict", ": millrace.Tensor['UINT8', -1, -1, 3]"} {
		t.Run("photo"+hint, func(t *testing.T) {
			r := newRig(t)
			g := r.mustLoad(r.write("service.py", "import millrace, numpy as np\ndef infer(photo"+hint+
				") -> int:\n    return 1\n"), nil)
			const says = "give it the hint millrace.Image, as in `photo: millrace.Image` or `photo: " +
				"millrace.Image[640, 480]`"
			if got := r.call(g, "image/jpeg", string(file)); !strings.Contains(got, says) {
				t.Errorf("a call of photo%s: %s", hint, got)
			}
			want := says
			if hint != ": np.ndarray" && hint != "" { // the server knows that the input is none
				want = "codec: model m takes tensors, not jpeg frames"
			}
			if res := r.run(g, stream.Frame{Codec: stream.JPEG, Payload: file}); res.Err == nil ||
				!strings.Contains(res.Err.Error(), want) {
				t.Errorf("a frame for photo%s: %v", hint, res.Err)
			}
		})
	}
}

// TestBytesInResults: bytes in a dict are an output of their own, in JSON of calls base64.
func TestBytesInResults(t *testing.T) {
	for result, declared := range map[string]bool{"-> dict": false, "-> Picture": true, "-> Dict[str, bytes]": false,
		"": false} {
		t.Run(result, func(t *testing.T) {
			r := newRig(t)
			g := r.mustLoad(r.write("service.py", `from typing import Dict, TypedDict
class Picture(TypedDict):
    picture: bytes
def infer(x: str) `+result+`:
    return {"picture": b"\xff\x00" + x.encode()}
`), nil)
			res := r.run(g, stream.Frame{Codec: stream.Opaque, Payload: []byte("a")})
			if res.Err != nil || len(res.Outputs) != 1 || res.Outputs[0].Name != "picture" ||
				string(res.Outputs[0].Data[4:]) != "\xff\x00a" {
				t.Errorf("%q: %v, %v", result, res.Err, res.Outputs)
			}
			res.Release()
			if got := r.call(g, "application/json", `{"x":"a"}`); got != `{"picture":"/wBh"}` {
				t.Errorf("%q: %s", result, got)
			}
			if outputs := g.Model().Outputs; (len(outputs) == 1 && outputs[0].Name == "picture") != declared {
				t.Errorf("%q: declares %v", result, outputs)
			}
		})
	}
}

// TestOptionalInputs: an argument that may be left out is declared with the datatype of its hint, and one that takes
// any tensor is not declared.
func TestOptionalInputs(t *testing.T) {
	testneeds.Python(t, "numpy")
	r := newRig(t)
	g := r.mustLoad(r.write("service.py", `import millrace, numpy as np
from typing import List, Optional
def infer(x: millrace.Tensor["FP32", 2], any: np.ndarray = None, y: millrace.Tensor["FP32", 2] = None, names: List[str] = None, n: Optional[int] = None) -> millrace.Tensor["FP64", 2]:
    return x + (0 if any is None else any) + (0 if y is None else y) + len(names or []) + (n or 0)
`), nil)
	var got []string
	for _, s := range g.Model().Inputs {
		got = append(got, fmt.Sprintf("%s %s %v %t", s.Name, s.Datatype, s.Shape, s.Optional))
	}
	if want := "x FP32 [2] false, y FP32 [2] true, names BYTES [-1] true, n INT64 [1] true"; strings.Join(got,
		", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
	x := stream.Tensor{Name: "x", Datatype: stream.Float32, Shape: []int{2}, Data: stream.AppendFloat32(nil, 1, 2)}
	y, extra := x, stream.Tensor{Name: "any", Datatype: stream.Uint8, Shape: []int{2}, Data: []byte{10, 10}}
	y.Name = "y"
	for _, c := range []struct {
		inputs []stream.Tensor
		want   float64
	}{{[]stream.Tensor{x}, 1}, {[]stream.Tensor{x, y}, 2}, {[]stream.Tensor{x, y, extra}, 12}} {
		res := r.run(g, stream.Frame{Codec: stream.Tensors, Inputs: c.inputs})
		if res.Err != nil || math.Float64frombits(binary.LittleEndian.Uint64(res.Outputs[0].Data)) != c.want {
			t.Errorf("%d inputs: %v, %v", len(c.inputs), res.Err, res.Outputs)
		}
		res.Release()
	}
	set := graph.Settings{Steps: []graph.Step{{Model: "m", Input: map[string]string{"x": "x"},
		Output: map[string]string{"output": "sum"}},
		{Name: "second", Model: "m", Input: map[string]string{"x": "x", "any": "sum"}}}, Outputs: []string{"sum"}}
	if _, err := r.m.LoadConfig(t.Context(), workers.Config{Name: "g", Kind: "graph", Params: set.Params()},
		true); err == nil || !strings.Contains(err.Error(), `any: is not an input of model m`) ||
		!strings.Contains(err.Error(), `any: millrace.Tensor["FP64", 2]`) {
		t.Errorf("a graph that fills the argument without a datatype: %v", err)
	}
}
