package overlay

import (
	"image"
	"image/color"
	"image/draw"
	"strings"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/font/gofont/gomedium"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// typeface is parsed once. A typeface is safe for concurrent use; its faces are not.
var typeface = sync.OnceValues(func() (*opentype.Font, error) { return opentype.Parse(gomedium.TTF) })

// textFace is the font at one size.
type textFace struct {
	face font.Face
	size float64
}

func newTextFace(size float64) textFace {
	l := textFace{face: basicfont.Face7x13, size: size}
	f, err := typeface()
	if err != nil {
		return l
	}
	if face, err := opentype.NewFace(f, &opentype.FaceOptions{Size: size, DPI: 72,
		Hinting: font.HintingFull}); err == nil {
		l.face = face
	}
	return l
}

func (l *textFace) close() { _ = l.face.Close() }

// pad is the space left and right of a text.
func (l *textFace) pad() int { return max(2, int(l.size/4)) }

// measure returns the size of a line of text.
func (l *textFace) measure(text string) (w, h int) {
	m := l.face.Metrics()
	return font.MeasureString(l.face, text).Ceil(), (m.Ascent + m.Descent).Ceil() + 1
}

// write writes text with the upper left corner at x, y.
func (l *textFace) write(dst draw.Image, x, y int, text string, c color.Color) {
	d := font.Drawer{Dst: dst, Src: image.NewUniform(c), Face: l.face}
	d.Dot = fixed.Point26_6{X: fixed.I(x), Y: fixed.I(y) + l.face.Metrics().Ascent}
	d.DrawString(text)
}

var shade = color.RGBA{12, 14, 18, 190}

// maxTop is how many classes classList shows.
const maxTop = 5

// classList writes classes in the upper left corner, each with a bar for its score.
func (p *pen) classList(top []Class) {
	top = top[:min(len(top), maxTop)]
	width, height := 0, 0
	for _, c := range top {
		w, h := p.measure(c.String())
		width, height = max(width, w), h
	}
	pad := p.pad()
	at := p.Rect.Min.Add(image.Pt(pad, pad))
	step := height + p.line + pad
	p.fill(image.Rect(at.X, at.Y, at.X+width+2*pad, at.Y+step*len(top)+pad), shade)
	for i, c := range top {
		y := at.Y + pad/2 + i*step
		p.write(p.RGBA, at.X+pad, y, c.String(), light)
		if finite(c.Score) {
			share := min(max(c.Score, 0), 1)
			p.fill(image.Rect(at.X+pad, y+height, at.X+pad+int(share*float64(width)), y+height+p.line), colourOf(c))
		}
	}
}

// caption writes text at the lower edge, cut off at the right edge.
func (p *pen) caption(text string) {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	_, h := p.measure(text)
	line := image.Rect(p.Rect.Min.X, p.Rect.Max.Y-h-2, p.Rect.Max.X, p.Rect.Max.Y)
	p.fill(line, shade)
	p.write(p.RGBA, line.Min.X+p.pad()*2, line.Min.Y+1, text, light)
}
