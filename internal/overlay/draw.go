package overlay

import (
	"image"
	"image/color"
	"image/draw"
	"math"
)

// minKeypointScore is the least score of a drawn keypoint.
const minKeypointScore = 0.3

// Draw draws a result over img: mask, boxes with their classes, keypoints, a list of classes in the upper left
// corner, and the caption, unless empty, in a dark line at the lower edge. Lines and letters scale with the picture.
// Parts outside the picture are not drawn.
func Draw(img *image.RGBA, r Result, caption string) {
	if img.Rect.Empty() {
		return
	}
	p := newPen(img)
	defer p.close()
	if r.Mask != nil {
		p.mask(r.Mask)
	}
	for i := range r.Boxes {
		p.box(&r.Boxes[i])
	}
	for i := range r.Boxes { // after all boxes, so that no box covers a label
		b := &r.Boxes[i]
		if text := b.Class.String(); text != "" {
			p.label(p.bounds(b), text, colourOf(b.Class))
		}
	}
	for i, pose := range r.Poses {
		c := palette[i%len(palette)]
		if i < len(r.Boxes) && len(r.Boxes) == len(r.Poses) {
			c = colourOf(r.Boxes[i].Class)
		}
		p.pose(pose, c)
	}
	if len(r.Top) > 0 {
		p.classList(r.Top)
	}
	if caption != "" {
		p.caption(caption)
	}
}

// palette has colours that are easy to tell apart.
var palette = []color.RGBA{
	{255, 200, 40, 255}, {70, 200, 255, 255}, {255, 95, 85, 255}, {120, 230, 90, 255}, {220, 130, 255, 255},
	{255, 150, 40, 255}, {60, 230, 200, 255}, {255, 130, 190, 255}, {150, 170, 255, 255}, {205, 220, 80, 255},
}

var (
	dark  = color.RGBA{12, 14, 18, 255}
	light = color.RGBA{250, 250, 250, 255}
)

// colourOf returns the colour of a class by its number, else by its label.
func colourOf(c Class) color.RGBA {
	n := uint(c.Number)
	if c.Number < 0 {
		n = 0
		for _, r := range c.Label {
			n = n*31 + uint(r)
		}
	}
	return palette[n%uint(len(palette))]
}

// pen draws on a picture.
type pen struct {
	*image.RGBA
	line int // width of lines, pixels
	textFace
}

func newPen(img *image.RGBA) *pen {
	short := min(img.Rect.Dx(), img.Rect.Dy())
	size := min(max(float64(short)/30, 11), 120)
	return &pen{RGBA: img, line: max(2, int(size/6)), textFace: newTextFace(size)}
}

// bounds returns a box in pixels, with its corners in order, clamped to one pixel outside the picture.
func (p *pen) bounds(b *Box) image.Rectangle {
	// Clamped beyond the picture, so that a larger box shows no edge inside.
	at := func(v float64, lo, hi int) int {
		return int(math.Round(min(max(v, float64(lo-2*p.line)), float64(hi+2*p.line))))
	}
	return image.Rect(
		at(b.X1, p.Rect.Min.X, p.Rect.Max.X), at(b.Y1, p.Rect.Min.Y, p.Rect.Max.Y),
		at(b.X2, p.Rect.Min.X, p.Rect.Max.X), at(b.Y2, p.Rect.Min.Y, p.Rect.Max.Y))
}

func (p *pen) box(b *Box) {
	if b.Rotated {
		for _, l := range []struct {
			width int
			color.RGBA
		}{{p.line + 2, dark}, {p.line, colourOf(b.Class)}} {
			for k, from := range b.Corners {
				to := b.Corners[(k+1)%4]
				p.segment(from.X, from.Y, to.X, to.Y, l.width, l.RGBA)
			}
		}
		return
	}
	r := p.bounds(b)
	p.outline(r.Inset(-1), 1, dark)
	p.outline(r, p.line, colourOf(b.Class))
	p.outline(r.Inset(p.line), 1, dark)
}

// outline draws the edge of r, inwards.
func (p *pen) outline(r image.Rectangle, width int, c color.RGBA) {
	if r.Dx() <= 2*width || r.Dy() <= 2*width {
		p.fill(r, c)
		return
	}
	p.fill(image.Rect(r.Min.X, r.Min.Y, r.Max.X, r.Min.Y+width), c)
	p.fill(image.Rect(r.Min.X, r.Max.Y-width, r.Max.X, r.Max.Y), c)
	p.fill(image.Rect(r.Min.X, r.Min.Y+width, r.Min.X+width, r.Max.Y-width), c)
	p.fill(image.Rect(r.Max.X-width, r.Min.Y+width, r.Max.X, r.Max.Y-width), c)
}

// segment draws a straight line, only near the picture.
func (p *pen) segment(x1, y1, x2, y2 float64, width int, c color.RGBA) {
	r := p.Rect.Inset(-2 * width)
	from, to := 0.0, 1.0                // the part of the line within r
	for _, side := range [4][2]float64{ // distance to an edge at the start, and its change (Liang and Barsky, 1984)
		{x1 - float64(r.Min.X), x2 - x1}, {float64(r.Max.X) - x1, x1 - x2},
		{y1 - float64(r.Min.Y), y2 - y1}, {float64(r.Max.Y) - y1, y1 - y2},
	} {
		at := -side[0] / side[1]
		switch {
		case side[1] == 0 && side[0] < 0:
			return
		case side[1] > 0:
			from = max(from, at)
		case side[1] < 0:
			to = min(to, at)
		}
	}
	if from > to {
		return
	}
	x1, y1, x2, y2 = x1+from*(x2-x1), y1+from*(y2-y1), x1+to*(x2-x1), y1+to*(y2-y1)
	steps := int(math.Ceil(max(math.Abs(x2-x1), math.Abs(y2-y1)))) + 1
	for i := range steps + 1 {
		at := float64(i) / float64(steps)
		x, y := int(math.Round(x1+at*(x2-x1)))-width/2, int(math.Round(y1+at*(y2-y1)))-width/2
		p.fill(image.Rect(x, y, x+width, y+width), c)
	}
}

// fill fills r with c. An alpha below 255, not premultiplied, is blended.
func (p *pen) fill(r image.Rectangle, c color.RGBA) {
	op, src := draw.Src, color.Color(c)
	if c.A < 255 {
		op, src = draw.Over, color.NRGBA(c)
	}
	draw.Draw(p.RGBA, r, image.NewUniform(src), image.Point{}, op)
}

// label writes a class on a background of its colour, above the box, or inside where there is no room above.
func (p *pen) label(box image.Rectangle, text string, c color.RGBA) {
	w, h := p.measure(text)
	back := image.Rect(0, 0, w+p.pad()*2, h).Add(image.Pt(box.Min.X-1, box.Min.Y-h))
	if back.Min.Y < p.Rect.Min.Y {
		back = back.Add(image.Pt(0, max(box.Min.Y, p.Rect.Min.Y)-back.Min.Y))
	}
	back = back.Add(image.Pt(max(0, p.Rect.Min.X-back.Min.X)-max(0, back.Max.X-p.Rect.Max.X), 0))
	p.fill(back.Inset(-1), dark)
	p.fill(back, c)
	p.write(p.RGBA, back.Min.X+p.pad(), back.Min.Y, text, dark)
}

func (p *pen) pose(pose Pose, c color.RGBA) {
	r := p.line + 1
	for _, k := range pose {
		at := image.Pt(int(min(max(k.X, -1e6), 1e6)), int(min(max(k.Y, -1e6), 1e6)))
		if k.Score < minKeypointScore || !at.In(p.Rect.Inset(-r)) {
			continue
		}
		p.disc(at, r+1, dark)
		p.disc(at, r, c)
	}
}

func (p *pen) disc(at image.Point, r int, c color.RGBA) {
	for dy := -r; dy <= r; dy++ {
		half := int(math.Sqrt(float64(r*r - dy*dy)))
		p.fill(image.Rect(at.X-half, at.Y+dy, at.X+half+1, at.Y+dy+1), c)
	}
}

// mask tints the pixels with a class.
func (p *pen) mask(m *Mask) {
	x1, y1, x2, y2 := m.X1, m.Y1, m.X2, m.Y2
	if m.Whole {
		x1, y1, x2, y2 = float64(p.Rect.Min.X), float64(p.Rect.Min.Y), float64(p.Rect.Max.X), float64(p.Rect.Max.Y)
	}
	if !(x2 > x1 && y2 > y1) {
		return
	}
	sx, sy := float64(m.Width)/(x2-x1), float64(m.Height)/(y2-y1)
	for y := p.Rect.Min.Y; y < p.Rect.Max.Y; y++ {
		my := int(math.Floor((float64(y) + 0.5 - y1) * sy))
		if my < 0 || my >= m.Height {
			continue
		}
		row := m.Pixels[my*m.Width:][:m.Width]
		for x := p.Rect.Min.X; x < p.Rect.Max.X; x++ {
			mx := int(math.Floor((float64(x) + 0.5 - x1) * sx))
			if mx < 0 || mx >= m.Width || row[mx] == 0 {
				continue
			}
			c := palette[(int(row[mx])-1)%len(palette)]
			px := p.Pix[p.PixOffset(x, y):][:3]
			px[0], px[1], px[2] = blend(px[0], c.R), blend(px[1], c.G), blend(px[2], c.B)
		}
	}
}

// blend mixes 55 % of a with 45 % of b.
func blend(a, b uint8) uint8 { return uint8((uint(a)*11 + uint(b)*9) / 20) }
