package postprocess

import (
	"math/rand/v2"
	"testing"

	"millrace/stream"
)

var fullHD = Mapping{X: [2]float64{3, 0}, Y: [2]float64{3, -420}, Width: 1920, Height: 1080}

func benchDecode(b *testing.B, c Config, m *stream.Model, out []stream.Tensor) {
	d, err := New(c, m)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		got, err := d.Decode(out, 0, 1, fullHD)
		if err != nil {
			b.Fatal(err)
		}
		n = got[0].Shape[1]
	}
	b.ReportMetric(float64(n), "answered/op")
	size := 0
	for _, t := range out {
		size += len(t.Data)
	}
	b.SetBytes(int64(size))
}

// yoloColumns is an output of layout v8 with 80 classes; share of the boxes reach the
// threshold.
func yoloColumns(share float64) []float32 {
	const n = 8400
	rng := rand.New(rand.NewPCG(1, 2))
	v := make([]float32, 84*n)
	for i := range n {
		v[i], v[n+i] = 640*rng.Float32(), 640*rng.Float32()
		v[2*n+i], v[3*n+i] = 20+80*rng.Float32(), 20+80*rng.Float32()
		for c := range 80 {
			v[(4+c)*n+i] = 0.01 * rng.Float32()
		}
		if rng.Float64() < share {
			v[(4+rng.IntN(80))*n+i] = 0.3 + 0.7*rng.Float32()
		}
	}
	return v
}

func BenchmarkYoloV8(b *testing.B) {
	for _, s := range []struct {
		name  string
		share float64
	}{{"few", 0.005}, {"some", 0.1}, {"all", 1}} {
		b.Run(s.name, func(b *testing.B) {
			m := modelOf(spec("out", 84, 8400))
			benchDecode(b, Config{YOLO: &YOLO{}}, m, []stream.Tensor{tensor("out", yoloColumns(s.share), 1, 84, 8400)})
		})
	}
	b.Run("half", func(b *testing.B) {
		m := modelOf(stream.TensorSpec{Name: "out", Datatype: stream.Float16, Shape: []int{84, 8400}})
		benchDecode(b, Config{YOLO: &YOLO{}}, m,
			[]stream.Tensor{{Name: "out", Datatype: stream.Float16, Shape: []int{1, 84, 8400},
				Data: make([]byte, 2*84*8400)}})
	})
}

func BenchmarkYoloV5(b *testing.B) {
	const n = 25200
	rng := rand.New(rand.NewPCG(1, 2))
	v := make([]float32, 85*n)
	for i := range v {
		v[i] = 0.1 * rng.Float32()
	}
	for range 100 {
		i := 85 * rng.IntN(n)
		v[i], v[i+1], v[i+2], v[i+3], v[i+4], v[i+5+rng.IntN(80)] = 640*rng.Float32(), 640*rng.Float32(), 50, 50, 0.9,
			0.9
	}
	benchDecode(b, Config{YOLO: &YOLO{}}, modelOf(spec("out", n, 85)), []stream.Tensor{tensor("out", v, 1, n, 85)})
}

// BenchmarkUltraFace has the size of a small face detector.
func BenchmarkUltraFace(b *testing.B) {
	const n = 4420
	rng := rand.New(rand.NewPCG(1, 2))
	places, scores := make([]float32, 4*n), make([]float32, 2*n)
	for i := range n {
		x, y := rng.Float32(), rng.Float32()
		copy(places[4*i:], []float32{x, y, x + 0.1, y + 0.1})
		scores[2*i+1] = 0.4 * rng.Float32()
		if i%88 == 0 {
			scores[2*i+1] = 0.5 + 0.5*rng.Float32()
		}
		scores[2*i] = 1 - scores[2*i+1]
	}
	m := modelOf(spec("scores", n, 2), spec("boxes", n, 4))
	out := []stream.Tensor{tensor("scores", scores, 1, n, 2), tensor("boxes", places, 1, n, 4)}
	b.Run("none", func(b *testing.B) {
		benchDecode(b, Config{Boxes: &Boxes{Units: "normalised", Background: true}}, m, out)
	})
	b.Run("softmax", func(b *testing.B) {
		benchDecode(b, Config{Boxes: &Boxes{Units: "normalised", Background: true, Activation: "softmax"}}, m, out)
	})
}

func BenchmarkClassify(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for a, most := range map[string]float32{"none": 1, "softmax": 10} {
		v := make([]float32, 1000)
		for i := range v {
			v[i] = most * rng.Float32()
		}
		b.Run(a, func(b *testing.B) {
			benchDecode(b, Config{Classify: &Classify{Activation: a}}, modelOf(spec("out", 1000)),
				[]stream.Tensor{tensor("out", v, 1, 1000)})
		})
	}
}

func BenchmarkMasks(b *testing.B) {
	const classes, side = 21, 512
	rng := rand.New(rand.NewPCG(1, 2))
	v := make([]float32, classes*side*side)
	for i := range v { // neighbouring pixels have the same class, as in pictures
		c, x := i/(side*side), i%side/64
		v[i] = rng.Float32()
		if c == x%classes {
			v[i] += 5
		}
	}
	benchDecode(b, Config{Masks: &Masks{}}, modelOf(spec("out", classes, side, side)),
		[]stream.Tensor{tensor("out", v, 1, classes, side, side)})
}

func BenchmarkHeatmaps(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	v := make([]float32, 17*64*48)
	for i := range v {
		v[i] = rng.Float32()
	}
	benchDecode(b, Config{Keypoints: &Keypoints{}}, modelOf(spec("out", 17, 64, 48)),
		[]stream.Tensor{tensor("out", v, 1, 17, 64, 48)})
}

func BenchmarkEmbedding(b *testing.B) {
	v := make([]float32, 512)
	for i := range v {
		v[i] = float32(i)
	}
	benchDecode(b, Config{Embedding: &Embedding{Normalise: true}}, modelOf(spec("out", 512)),
		[]stream.Tensor{tensor("out", v, 1, 512)})
}
