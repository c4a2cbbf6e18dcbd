package codec

import (
	"encoding/binary"
	"image"
	"image/color"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// box is a rectangle in pixels, left, top, right and bottom.
type box [4]float64

func (b box) area() float64 { return max(b[2]-b[0], 0) * max(b[3]-b[1], 0) }

func (b box) iou(c box) float64 {
	both := box{max(b[0], c[0]), max(b[1], c[1]), min(b[2], c[2]), min(b[3], c[3])}.area()
	return both / (b.area() + c.area() - both)
}

// stored turns an upright picture into the form stored by a camera with an orientation.
func stored(upright *image.RGBA, o int) *image.RGBA {
	w, h := upright.Rect.Dx(), upright.Rect.Dy()
	sw, sh := w, h
	if o >= 5 {
		sw, sh = h, w
	}
	m := image.NewRGBA(image.Rect(0, 0, sw, sh))
	for y := range h {
		for x := range w {
			sx, sy := turn(o, x, y, w, h)
			m.SetRGBA(sx, sy, upright.RGBAAt(x, y))
		}
	}
	return m
}

// found is the part of the tensor brighter than half. The sides of the box lie where the brightness crosses half,
// between two pixels.
func found(got []byte, w, h int) box {
	at := func(x, y int) float64 { return float64(got[y*w+x]) }
	best, cx, cy := -1.0, 0, 0
	for y := range h {
		for x := range w {
			if v := at(x, y); v > best {
				best, cx, cy = v, x, y
			}
		}
	}
	edge := func(from, step, end int, value func(int) float64) float64 {
		i := from
		for i != end && value(i) >= 127.5 {
			i += step
		}
		centre := float64(i) + 0.5
		if i == end {
			return centre - 0.5*float64(step) // the border of the tensor
		}
		a, b := value(i-step), value(i)
		return centre - float64(step)*(127.5-b)/(a-b)
	}
	return box{
		edge(cx, -1, -1, func(x int) float64 {
			return at(x, cy)
		}), edge(cy, -1, -1, func(y int) float64 { return at(cx, y) }),
		edge(cx, 1, w, func(x int) float64 {
			return at(x, cy)
		}), edge(cy, 1, h, func(y int) float64 { return at(cx, y) }),
	}
}

// A rectangle drawn at a known place is found in the target, and mapped back to its place in the upright frame: for
// every size, fit, orientation, region and shrink, and every form of pixels. A side may be off by a pixel of the
// frame or half a pixel of the target or of the scaled frame, whichever is largest, but not to one side on average.
func TestBoxesMapBackToTheFrame(outer *testing.T) {
	d := NewDecoder(Limits{})
	var bias [4]float64
	var overlap, n float64
	rapid.Check(outer, func(t *rapid.T) {
		side := rapid.OneOf(rapid.IntRange(3, 40), rapid.IntRange(41, 400),
			rapid.SampledFrom([]int{1, 2, 64, 256, 255, 257, 640}))
		w, h := side.Draw(t, "w"), side.Draw(t, "h")
		target := rapid.OneOf(rapid.IntRange(8, 70),
			rapid.SampledFrom([]int{16, 32, 64, 128, w, h, (w + 1) / 2, (h + 3) / 4, (w + 7) / 8}))
		tg := Target{Width: target.Draw(t, "tw"), Height: target.Draw(t, "th"), Color: Gray,
			Fit: Fit(rapid.IntRange(0, 1).Draw(t, "fit"))}
		o := rapid.IntRange(1, 8).Draw(t, "orientation")

		// At least four pixels of the target, so that the middle is surely seen, and away from the border or up to
		// the border: a black line between, thinner than a target's pixel, would be invisible.
		_, p := tg.place(w, h)
		// The picture, or a region of a larger picture with white beyond the region.
		var left, top, right, below int
		if rapid.Bool().Draw(t, "region") {
			pad := rapid.IntRange(0, 40)
			left, top, right, below = pad.Draw(t, "left"), pad.Draw(t, "top"), pad.Draw(t, "right"),
				pad.Draw(t, "below")
			tg.Region = Region{left, top, w, h}
		}
		const margin = 16
		around := image.Rect(left-margin, top-margin, left+w+margin, top+h+margin)
		frameW, frameH := left+w+right, top+h+below
		// A scaled frame has its own, coarser pixels.
		how := rapid.SampledFrom([]string{"jpeg", "png", "rgb24", "scaled"}).Draw(t, "how")
		scaledW, scaledH := frameW, frameH
		if how == "scaled" {
			by := rapid.SampledFrom([]float64{1, 1.01, 1.3, 2, 3, 4.7})
			scaledW, scaledH = max(int(float64(frameW)/by.Draw(t, "scaled x")), 1),
				max(int(float64(frameH)/by.Draw(t, "scaled y")), 1)
		}
		coarse := [2]float64{max(p.ScaleX, float64(frameW)/float64(scaledW)),
			max(p.ScaleY, float64(frameH)/float64(scaledH))}
		span := func(name string, side int, scale float64) (from, to int) {
			long, away := int(math.Ceil(4*max(scale, 1))), int(math.Ceil(1.5*max(scale, 1)))
			switch {
			case long+2*away <= side:
			case how == "scaled" && tg.Region != Region{}:
				t.Skip("a pixel of the scaled frame mixes the region with what lies around it")
			default:
				return 0, side // the whole side
			}
			from = rapid.IntRange(away, side-away-long).Draw(t, name)
			to = rapid.IntRange(from+long, side-away).Draw(t, name+" end")
			if rapid.Bool().Draw(t, name+" at the border") {
				return 0, to
			}
			return from, to
		}
		x0, x1 := span("x", w, coarse[0])
		y0, y1 := span("y", h, coarse[1])
		white := image.Rect(left+x0, top+y0, left+x1, top+y1)
		m := image.NewRGBA(image.Rect(0, 0, frameW, frameH))
		for y := range frameH {
			for x := range frameW {
				c := color.RGBA{0, 0, 0, 255}
				if at := image.Pt(x, y); at.In(white) || !at.In(around) {
					c = color.RGBA{255, 255, 255, 255}
				}
				m.SetRGBA(x, y, c)
			}
		}

		got := make([]byte, tg.Size(frameW, frameH))
		var placed Placed
		var err error
		switch how {
		case "scaled":
			small := Target{Width: scaledW, Height: scaledH}
			b := make([]byte, small.Size(frameW, frameH))
			if _, err = d.Convert(packed(m), RGB24, frameW, frameH, small, b); err == nil {
				tg.SourceWidth, tg.SourceHeight = frameW, frameH
				placed, err = d.Convert(b, RGB24, scaledW, scaledH, tg, got)
			}
		case "jpeg":
			placed, err = d.Decode(withExif(jpegOf(outer, stored(m, o), 100), o, binary.BigEndian), tg, got)
		case "png":
			b := pngOf(outer, stored(m, o))
			b = append(b[:33:33], append(pngChunk("eXIf", tiffOf(o, binary.LittleEndian)), b[33:]...)...)
			placed, err = d.Decode(b, tg, got)
		default:
			placed, err = d.Convert(packed(m), RGB24, frameW, frameH, tg, got)
		}
		if err != nil {
			t.Fatal(err)
		}
		if placed.Width != frameW || placed.Height != frameH {
			t.Fatalf("placed %+v, want %dx%d", placed, frameW, frameH)
		}
		tw, th := tg.Dims(frameW, frameH)
		f := found(got, tw, th)
		var back box
		back[0], back[1] = placed.ToFrame(f[0], f[1])
		back[2], back[3] = placed.ToFrame(f[2], f[3])
		for i := range back {
			back[i] = min(max(back[i], 0), float64([2]int{frameW, frameH}[i%2]))
		}
		truth := box{float64(left + x0), float64(top + y0), float64(left + x1), float64(top + y1)}
		for i := range truth {
			scale := coarse[i%2]
			off := back[i] - truth[i]
			if math.Abs(off) > max(1, scale/2) {
				t.Fatalf(
					"%s %dx%d, orientation %d, to %dx%d: side %d is %.2f, want %v (%v, %v), a target pixel is %.2f",
					how, w, h, o, tw, th, i, back[i], truth[i], back, truth, scale)
			}
			bias[i] += off / max(1, scale)
		}
		overlap += back.iou(truth)
		n++
	})
	if n < 100 { // with -short: too few for an average
		return
	}
	for i, b := range bias {
		if math.Abs(b/n) > 0.1 {
			outer.Errorf("side %d is off by %.3f on average, in the coarser of frame's and target's pixels", i, b/n)
		}
	}
	if overlap/n < 0.95 {
		outer.Errorf("IoU %.3f on average", overlap/n)
	}
}
