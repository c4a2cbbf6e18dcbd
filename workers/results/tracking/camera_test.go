package tracking

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"millrace/internal/codec"
	"millrace/stream"
	"millrace/workers/results"
)

// texture is a smooth random pattern without edges, larger than a picture.
type texture struct {
	waves [12][4]float64
}

func newTexture(seed uint64) *texture {
	rng := rand.New(rand.NewPCG(seed, 19))
	x := &texture{}
	for i := range x.waves {
		length := 60 + 300*rng.Float64() // pixels of the frame
		angle := 2 * math.Pi * rng.Float64()
		x.waves[i] = [4]float64{2 * math.Pi / length * math.Cos(angle), 2 * math.Pi / length * math.Sin(angle),
			2 * math.Pi * rng.Float64(), 17}
	}
	return x
}

func (x *texture) at(u, v float64) float64 {
	sum := 128.0
	for _, w := range x.waves {
		sum += w[3] * math.Sin(w[0]*u+w[1]*v+w[2])
	}
	return sum
}

// draw renders the small picture of a frame of 1280x720: the texture moved by m, objects as gray boxes, and noise.
func (x *texture) draw(l *luma, m similarity, boxes [][4]float64, light float64, rng *rand.Rand) (sx, sy float64) {
	sx, sy = 1280.0/cameraWidth, 720.0/cameraHeight
	size := m.a*m.a + m.b*m.b
	for i := range l.full {
		px, py := (float64(i%cameraWidth)+0.5)*sx, (float64(i/cameraWidth)+0.5)*sy
		u, v := px-m.dx, py-m.dy // undo m
		u, v = (m.a*u+m.b*v)/size, (m.a*v-m.b*u)/size
		value := x.at(u, v)
		for k, b := range boxes {
			if px > b[0] && px < b[2] && py > b[1] && py < b[3] {
				value = 60 + 20*float64(k%5) + 40*math.Sin((px-b[0])/9)*math.Sin((py-b[1])/9)
			}
		}
		value += light + 2*rng.NormFloat64()
		l.full[i] = byte(min(max(value, 0), 255))
	}
	l.shrink()
	return sx, sy
}

func turned(angle, size, dx, dy float64) similarity { // about the picture's middle
	s := similarity{a: size * math.Cos(angle), b: size * math.Sin(angle)}
	x, y := s.of(640, 360)
	s.dx, s.dy = 640-x+dx, 360-y+dy
	return s
}

func TestCameraMotion(t *testing.T) {
	for name, c := range map[string]struct {
		motion  similarity
		objects int
		light   float64
	}{
		"still":                      {turned(0, 1, 0, 0), 0, 0},
		"a fraction of a pixel":      {turned(0, 1, 3, -2), 0, 0},
		"shift":                      {turned(0, 1, 41, -23), 0, 0},
		"far":                        {turned(0, 1, -110, 60), 0, 0},
		"objects move another way":   {turned(0, 1, 17, 9), 8, 0},
		"brighter":                   {turned(0, 1, 17, 9), 8, 40},
		"turn":                       {turned(0.02, 1, 10, 5), 0, 0},
		"zoom":                       {turned(0, 1.03, 0, 0), 4, 0},
		"turn, zoom, shift, objects": {turned(-0.02, 0.98, 30, -10), 8, -10},
	} {
		t.Run(name, func(t *testing.T) {
			var worst float64
			for seed := range uint64(3) {
				rng := rand.New(rand.NewPCG(seed, 23))
				x := newTexture(seed)
				var before, after [][4]float64
				for range c.objects {
					u, v := 1200*rng.Float64(), 600*rng.Float64()
					before = append(before, [4]float64{u, v, u + 90, v + 180})
					u, v = u+40*rng.NormFloat64(), v+20*rng.NormFloat64()
					after = append(after, [4]float64{u, v, u + 90, v + 180})
				}
				k, v := &camera{}, &scene{moved: still}
				var sx, sy float64
				for i, m := range []similarity{still, c.motion} {
					boxes, light := before, 0.0
					if i > 0 {
						boxes, light = after, c.light
					}
					sx, sy = x.draw(&v.pictures[1-v.last], m, boxes, light, rng)
					v.add(k, [6]float64{sx, sy, 0, 0, 1280, 720})
				}
				m := v.take()
				if m == still {
					t.Fatalf("seed %d: no motion found", seed)
				}
				if v.take() != still {
					t.Fatal("the motion is taken twice")
				}
				for _, p := range [][2]float64{{200, 100}, {640, 360}, {1100, 600}} {
					wantX, wantY := c.motion.of(p[0], p[1])
					gotX, gotY := m.of(p[0], p[1])
					worst = max(worst, math.Hypot(gotX-wantX, gotY-wantY))
				}
			}
			t.Logf("off by at most %.2f pixels of 1280x720", worst)
			if worst > 4 {
				t.Errorf("a point is off by %.1f pixels", worst)
			}
		})
	}
}

// Pictures without texture, or without anything in common, have no motion.
func TestCameraFindsNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	var flat, noisy, other, stripes, moved luma
	for i := range flat.full {
		wave := func(x int) byte { return byte(120 + 80*math.Sin(float64(x)/3) + 2*rng.NormFloat64()) }
		stripes.full[i], moved.full[i] = wave(i%cameraWidth), wave(i%cameraWidth+1)
		flat.full[i], noisy.full[i], other.full[i] = 90, byte(rng.IntN(256)), byte(rng.IntN(256))
	}
	for _, l := range []*luma{&flat, &noisy, &other, &stripes, &moved} {
		l.shrink()
	}
	var k camera
	for name, p := range map[string][2]*luma{"flat": {&flat, &flat}, "noise": {&noisy, &other}, "cut": {&flat, &noisy},
		"stripes, which show no motion along": {&stripes, &moved}} {
		if m, ok := k.motion(p[0], p[1], 8, 6); ok {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// A picture of another region of the frame, or of another size, has no motion. The motion is that of the frame.
func TestCameraPlaces(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	x, k, v := newTexture(9), &camera{}, &scene{moved: still}
	turn := turned(0.02, 1, 0, 0)
	for i, c := range []struct {
		motion similarity
		place  [6]float64
		moves  bool
	}{
		{still, [6]float64{8, 6, 0, 0, 1280, 720}, false},
		{turn, [6]float64{8, 6, 300, 200, 3000, 2000}, false},
		{still, [6]float64{8, 6, 300, 200, 3000, 2000}, true},
	} {
		x.draw(&v.pictures[1-v.last], c.motion, nil, 0, rng)
		v.add(k, c.place)
		m := v.take()
		if (m != still) != c.moves {
			t.Fatalf("picture %d: %v", i, m)
		}
		if u, w := m.of(940, 560); c.moves && math.Hypot(u-940, w-560) > 3 { // the middle of the region
			t.Errorf("the middle moves to %.1f %.1f", u, w)
		}
	}
}

// With the camera's motion, to about a pixel, walkers keep ids in a shaking picture.
func TestShakingCamera(t *testing.T) {
	all := walkers(func(s *street) { s.shake = 12 }).sequences()
	for kind, least := range map[string]float64{IoU: 0.8, ByteTrack: 0.9} {
		var m [2]measures
		c := Config{Kind: kind, Score: 0.5, MaxAge: time.Second}
		for i, camera := range []bool{false, true} {
			c.Camera = camera
			for _, frames := range all {
				m[i].add(run(c, frames))
			}
			t.Logf("%-9s camera %5v: MOTA %.3f, IDF1 %.3f, HOTA %.3f, %d switches", kind, c.Camera, m[i].MOTA,
				m[i].IDF1, m[i].HOTA, m[i].Switches)
		}
		if m[1].IDF1 < least || m[1].IDF1 < m[0].IDF1+0.1 {
			t.Errorf("%s: IDF1 %.3f, without the camera's motion %.3f", kind, m[1].IDF1, m[0].IDF1)
		}
	}
}

type noQueue struct{}

func (noQueue) Enqueue(*stream.Stream, any) {}
func (noQueue) Admit(bool) error            { return nil }
func (noQueue) AddWaiting(int)              {}
func (noQueue) Ended(*stream.Request)       {}
func (noQueue) Detach(*stream.Stream)       {}

type noSink struct{}

func (noSink) Push(*stream.Result)       {}
func (noSink) Done(_ stream.CloseReason) {}

// A small object in a shaking picture keeps the id through the stage, from the pixels of the frames.
func TestCameraStage(t *testing.T) {
	const width, height, margin = 320, 180, 40
	var wall [height + 2*margin][]byte // each pixel three times
	x := newTexture(5)
	for v := range wall {
		for u := range width + 2*margin {
			g := byte(min(max(x.at(4*float64(u), 4*float64(v)), 0), 255))
			wall[v] = append(wall[v], g, g, g)
		}
	}
	decoder := codec.NewDecoder(codec.Limits{})
	worker := &stream.Model{Name: "m", Image: &stream.ImageSpec{}, Outputs: []stream.TensorSpec{
		{Name: "boxes", Datatype: stream.Float32, Shape: []int{-1, 4}}}}
	for _, on := range []bool{true, false} {
		seen := *worker
		env := &results.Env{Worker: worker, Model: &seen, Decoded: true,
			Picture: func(r *stream.Request, to codec.Target, dst []byte) (codec.Placed, error) {
				return decoder.Convert(r.Payload, codec.RGB24, r.Width, r.Height, to, dst)
			}}
		st, err := newStage(Settings{Track: true, Config: Config{Kind: ByteTrack, Camera: on}}, env)
		if err != nil {
			t.Fatal(err)
		}
		policy := stream.Policy{Mode: stream.Every, Window: 8}
		s := stream.New(&seen, noQueue{}, noSink{}, stream.Options{Policy: policy})
		rng := rand.New(rand.NewPCG(7, 29))
		ids := map[int64]int{}
		for i := range 40 {
			dx, dy := int(8*rng.NormFloat64()), int(5*rng.NormFloat64())
			var pixels []byte
			for v := range height {
				pixels = append(pixels, wall[v+margin-dy][3*(margin-dx):][:3*width]...)
			}
			if err := s.Submit(stream.Frame{Codec: stream.RGB24, Width: width, Height: height, Payload: pixels,
				CaptureUS: int64(1 + i*40_000)}); err != nil {
				t.Fatal(err)
			}
			r, _ := s.Take(stream.Now(), 1, nil, 0)
			if r == nil {
				t.Fatal("no request")
			}
			if on {
				if _, ended := st.Before(r); ended {
					t.Fatal("the stage has answered the frame")
				}
			}
			var data []byte
			for _, v := range []int{150 + dx, 80 + dy, 162 + dx, 92 + dy} {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v)))
			}
			score := binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.9))
			out, err := st.After(r, results.Outputs{Tensors: []stream.Tensor{
				{Name: "boxes", Datatype: stream.Float32, Shape: []int{1, 1, 4}, Data: data},
				{Name: "scores", Datatype: stream.Float32, Shape: []int{1, 1}, Data: score}}})
			if err != nil {
				t.Fatal(err)
			}
			ids[int64(binary.LittleEndian.Uint64(out[2].Data))]++
			r.Finish(nil, nil, false)
		}
		if (ids[1] == 39) != on {
			t.Errorf("track_camera %v: frames by id %v", on, ids)
		}
	}
}

func TestCameraNeedsPictures(t *testing.T) {
	m := &stream.Model{Name: "m", Outputs: []stream.TensorSpec{
		{Name: "boxes", Datatype: stream.Float32, Shape: []int{-1, 4}}}}
	env := &results.Env{Worker: m, Model: m, Decoded: true}
	_, err := newStage(Settings{Track: true, Config: Config{Camera: true}}, env)
	if err == nil || !strings.Contains(err.Error(), "output.track_camera") {
		t.Error(err)
	}
	env.Decoded = false
	_, err = newStage(Settings{Track: true}, env)
	if err == nil || !strings.Contains(err.Error(), "output.track: needs boxes: set output.boxes or output.yolo") {
		t.Error(err)
	}
}

func BenchmarkCamera(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	x := newTexture(1)
	var p, q luma
	x.draw(&p, still, nil, 0, rng)
	sx, sy := x.draw(&q, turned(0.01, 1, 17, 9), nil, 0, rng)
	var k camera
	for b.Loop() {
		q.shrink()
		k.motion(&p, &q, sx, sy)
	}
}
