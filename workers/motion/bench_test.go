package motion

import (
	"math/rand/v2"
	"testing"
)

// frames are n noisy pictures of squares moving over a textured wall.
func frames(s Settings, n int) [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	wall := make([]byte, s.Width*s.Height)
	for i := range wall {
		x, y := i%s.Width, i/s.Width
		wall[i] = byte(100 + (x*7/16+y*5/16)%40)
	}
	list := make([][]byte, n)
	for k := range list {
		f := make([]byte, len(wall))
		for i, v := range wall {
			f[i] = v + byte(rng.IntN(4))
		}
		for q := range 4 {
			x0, y0, side := (40+70*q+3*k)%(s.Width-s.Width/8), s.Height/8+q*s.Height/6, s.Width/10
			for y := y0; y < min(y0+side, s.Height); y++ {
				for x := x0; x < x0+side; x++ {
					f[y*s.Width+x] = byte(200 + rng.IntN(4))
				}
			}
		}
		list[k] = f
	}
	return list
}

func BenchmarkDetect(b *testing.B) {
	d, err := NewDetector(Settings{})
	if err != nil {
		b.Fatal(err)
	}
	list := frames(d.Settings(), 64)
	b.ReportAllocs()
	n := 0
	for i := 0; b.Loop(); i++ {
		n += len(d.Detect(list[i%len(list)]))
	}
	b.ReportMetric(float64(n)/float64(b.N), "boxes/op")
}
