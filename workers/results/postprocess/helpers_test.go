package postprocess

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/stream"
)

func spec(name string, shape ...int) stream.TensorSpec {
	return stream.TensorSpec{Name: name, Datatype: stream.Float32, Shape: shape}
}

// modelOf takes pictures of 640 by 640.
func modelOf(outputs ...stream.TensorSpec) *stream.Model {
	return &stream.Model{
		Name: "m", Inputs: []stream.TensorSpec{spec("x", 3, 640, 640)}, Outputs: outputs,
		Image: &stream.ImageSpec{Width: 640, Height: 640, Layout: "NCHW"}, MaxBatch: 8,
	}
}

func tensor(name string, v []float32, shape ...int) stream.Tensor {
	return stream.Tensor{Name: name, Datatype: stream.Float32, Shape: shape, Data: stream.AppendFloat32(nil, v...)}
}

func int64s(name string, v []int64, shape ...int) stream.Tensor {
	t := stream.Tensor{Name: name, Datatype: stream.Int64, Shape: shape}
	for _, x := range v {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(x))
	}
	return t
}

func decoder(t testing.TB, c Config, m *stream.Model) *Decoder {
	t.Helper()
	d, err := New(c, m)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// answer decodes all rows of out, without a mapping to a frame if at is zero, and
// checks that each tensor is complete and as Specs says.
func answer(t testing.TB, d *Decoder, at Mapping, out ...stream.Tensor) map[string]stream.Tensor {
	t.Helper()
	got, err := d.Decode(out, 0, out[0].Shape[0], at)
	if err != nil {
		t.Fatal(err)
	}
	specs, named := d.Specs(), map[string]stream.Tensor{}
	if len(specs) != len(got) {
		t.Fatalf("%d tensors for %d specs", len(got), len(specs))
	}
	for i, g := range got {
		if err := g.CheckSize(""); err != nil {
			t.Fatal(err)
		}
		s := specs[i]
		if g.Name != s.Name || g.Datatype != s.Datatype || g.Shape[0] != out[0].Shape[0] ||
			!slices.EqualFunc(g.Shape[1:], s.Shape, agree) {
			t.Fatalf("%s %s %v is not as Specs says: %+v", g.Name, g.Datatype, g.Shape, s)
		}
		named[g.Name] = g
	}
	return named
}

func ints(t stream.Tensor) []int64 {
	var v []int64
	for d := t.Data; len(d) > 0; d = d[8:] {
		v = append(v, int64(binary.LittleEndian.Uint64(d)))
	}
	return v
}

func words(t stream.Tensor) []string {
	var v []string
	for d := t.Data; len(d) > 0; {
		n := 4 + int(binary.LittleEndian.Uint32(d))
		v = append(v, string(d[4:n]))
		d = d[n:]
	}
	return v
}

func near(a, b []float32, by float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return x-y <= by && y-x <= by })
}

func wantFloats(t testing.TB, got stream.Tensor, want ...float32) {
	t.Helper()
	if v := got.Float32s(); !near(v, want, 1e-4) {
		t.Errorf("%s %v = %v, want %v", got.Name, got.Shape, v, want)
	}
}

func wantInts(t testing.TB, got stream.Tensor, want ...int64) {
	t.Helper()
	if v := ints(got); !slices.Equal(v, want) {
		t.Errorf("%s %v = %v, want %v", got.Name, got.Shape, v, want)
	}
}

func wantWords(t testing.TB, got stream.Tensor, want ...string) {
	t.Helper()
	if v := words(got); !slices.Equal(v, want) {
		t.Errorf("%s %v = %q, want %q", got.Name, got.Shape, v, want)
	}
}

func wantShape(t testing.TB, got stream.Tensor, want ...int) {
	t.Helper()
	if !slices.Equal(got.Shape, want) {
		t.Errorf("%s has the shape %v, want %v", got.Name, got.Shape, want)
	}
}

func wantError(t testing.TB, err error, code stream.Code, field, text string) {
	t.Helper()
	e, ok := err.(*stream.Error)
	if !ok || e.Code != code || e.Field != field || !strings.Contains(e.Msg, text) {
		t.Errorf("error %#v (%v), want %s at %q with %q", err, err, code, field, text)
	}
}

func labelFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "labels.txt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
