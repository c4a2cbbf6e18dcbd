package video

import "math"

// matrix changes NV12 frames of another matrix to BT.601, in place. ffmpeg does not change the matrix: its scaler goes
// through RGB, which takes about three times as long. Of a frame without colours, nothing changes
// (docs/adr/007-video.md).
type matrix struct {
	yu, yv, uu, uv, vu, vv [256]int32 // what U and V add to Y, U and V, in units of 1/65536
}

// lumas are the shares of red and blue in the luma of a matrix, by ffmpeg's names. Further matrices are rare.
var lumas = map[string][2]float64{
	"bt709":     {0.2126, 0.0722},
	"gbr":       {0.2126, 0.0722}, // pictures in RGB: ffmpeg's scaler chooses this matrix
	"bt2020nc":  {0.2627, 0.0593},
	"smpte240m": {0.212, 0.087},
	"fcc":       {0.30, 0.11},
}

// matrixFrom returns the change from a matrix to BT.601, or nil for BT.601 and unknown matrices.
func matrixFrom(name string) *matrix {
	from, ok := lumas[name]
	if !ok {
		return nil
	}
	const r6, b6 = 0.299, 0.114
	r, b := from[0], from[1]
	g := 1 - r - b
	// With a luma of 0, a picture's colours have the red 2(1-r)V, the blue 2(1-b)U and a green that makes the luma 0.
	luma := func(red, green, blue float64) float64 { return r6*red + (1-r6-b6)*green + b6*blue }
	of := func(u, v float64) (y, cb, cr float64) {
		red, blue := 2*(1-r)*v, 2*(1-b)*u
		y = luma(red, -(r*red+b*blue)/g, blue)
		return y, (blue - y) / (2 * (1 - b6)), (red - y) / (2 * (1 - r6))
	}
	yu, uu, vu := of(1, 0)
	yv, uv, vv := of(0, 1)
	m := &matrix{}
	const limited = 219.0 / 224 // the range of luma by the range of chroma
	for i := range 256 {
		d := 65536 * float64(i-128)
		round := func(x float64) int32 { return int32(math.Round(x)) }
		m.yu[i], m.yv[i] = round(d*yu*limited)+1<<15, round(d*yv*limited)
		m.uu[i], m.uv[i] = round(d*uu)+128<<16+1<<15, round(d*uv)
		m.vu[i], m.vv[i] = round(d*vu)+128<<16+1<<15, round(d*vv)
	}
	return m
}

// apply changes a frame of w by h pixels.
func (m *matrix) apply(nv12 []byte, w, h int) {
	stride := 2 * ((w + 1) / 2)
	luma, chroma := nv12[:w*h], nv12[w*h:]
	for y := 0; y < h; y += 2 {
		pairs := chroma[y/2*stride:][:stride]
		upper := luma[y*w:][:w]
		lower := upper
		if y+1 < h {
			lower = luma[(y+1)*w:][:w]
		}
		for x := 0; x < stride; x += 2 {
			u, v := pairs[x], pairs[x+1]
			if u == 128 && v == 128 {
				continue
			}
			pairs[x] = clamp((m.uu[u] + m.uv[v]) >> 16)
			pairs[x+1] = clamp((m.vu[u] + m.vv[v]) >> 16)
			d := (m.yu[u] + m.yv[v]) >> 16
			if d == 0 {
				continue
			}
			upper[x] = clamp(int32(upper[x]) + d)
			if x+1 < w {
				upper[x+1] = clamp(int32(upper[x+1]) + d)
			}
			if y+1 < h {
				lower[x] = clamp(int32(lower[x]) + d)
				if x+1 < w {
					lower[x+1] = clamp(int32(lower[x+1]) + d)
				}
			}
		}
	}
}

func clamp(v int32) byte {
	if uint32(v) > 255 {
		return byte(^(v >> 31))
	}
	return byte(v)
}
