package python

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/stream"
	"millrace/workers"
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
	g := r.mustLoad(r.write("service.py", "def infer(data: bytes, state: dict) -> str:\n    state['all'] = state.get('all', '') + data.decode()\n    return state['all']\n"), nil)
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
	next := r.open(r.mustLoad(r.write("service.py", "def infer(n: str):\n    for i in range(int(n)):\n        yield i\n"), nil))
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
	source := r.write("service.py", "from millrace import Tensor\ndef infer(x: Tensor['FP32', -1]) -> Tensor['FP32', 2]:\n    return [x.shape[0], x.sum()]\n")
	cfg := workers.Config{Name: "m", Source: source, Kind: "python", Params: stream.Params{"python": interpreter}, Window: workers.Window{Length: 4, Hop: 2}}
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
		f := &stream.Frame{Codec: stream.Tensors, Inputs: []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{2}, Data: data[i*16 : i*16+8]}}}
		if i == 0 {
			f.Inputs[0].Shape, f.Inputs[0].Data = []int{4}, data[:16]
		}
		if got := next(f).Outputs[0].Float32s(); len(got) != 2 || got[0] != 4 || got[1] != want {
			t.Errorf("window %d: %v, want 4 and %v", i, got, want)
		}
	}
}

// TestPictures gives a function a picture that the server decodes, scaled and in its own size:
// the box that it finds is in pixels of the picture as sent.
func TestPictures(t *testing.T) {
	picture := image.NewRGBA(image.Rect(0, 0, 320, 160))
	draw.Draw(picture, image.Rect(64, 32, 128, 96), image.NewUniform(color.White), image.Point{}, draw.Src)
	var file bytes.Buffer
	if err := jpeg.Encode(&file, picture, &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	for _, hint := range []string{"Image[80, 80]", "Image", "Image[80, 80, 'GRAY']"} {
		t.Run(hint, func(t *testing.T) {
			r := newRig(t)
			g := r.mustLoad(r.write("service.py", strings.ReplaceAll(`
import numpy as np
from millrace import Boxes, Image
def infer(picture: HINT) -> Boxes:
    rows, columns = np.nonzero(picture[..., 0] > 128)
    return Boxes([[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]])
`, "HINT", hint)), nil)
			got := r.open(g)(&stream.Frame{Codec: stream.JPEG, Payload: file.Bytes()}).Outputs[0].Float32s()
			want := []float64{64, 32, 128, 96}
			for i := range want {
				if len(got) != 4 || math.Abs(float64(got[i])-want[i]) > 4 {
					t.Fatalf("got %v, want %v", got, want)
				}
			}
		})
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
	g := r.mustLoad(r.write("service.py", "import only_there, os\ndef infer(x: str) -> str:\n    return only_there.x + os.environ['VIRTUAL_ENV']\n"), stream.Params{"python": nil, "venv": venv})
	if got := r.text(g, "x"); got != "there"+venv {
		t.Error(got)
	}
}
