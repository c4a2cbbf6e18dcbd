package codec

import (
	"errors"
	"fmt"
)

// ErrRegion is the error of a target whose region is not within the picture.
var ErrRegion = errors.New("region does not lie in the picture")

// Region is a part of the upright picture, in the picture's pixels. The zero Region is the whole picture.
type Region struct {
	X, Y          int // the upper left pixel
	Width, Height int
}

// orFullPicture returns r, or the whole upright picture of w by h for the zero Region.
func (r Region) orFullPicture(w, h int) Region {
	if r == (Region{}) {
		return Region{Width: w, Height: h}
	}
	return r
}

// check refuses an empty region, and a region not within a picture of w by h.
func (r Region) check(w, h int) error {
	switch {
	case r.Width < 1 || r.Height < 1:
		return fmt.Errorf("codec: %w: %dx%d at %d,%d is empty: choose a part of the %dx%d picture", ErrRegion, r.Width,
			r.Height, r.X, r.Y, w, h)
	case r.X < 0 || r.Y < 0 || r.X > w-r.Width || r.Y > h-r.Height:
		return fmt.Errorf("codec: %w: %dx%d at %d,%d reaches beyond the %dx%d picture", ErrRegion, r.Width, r.Height,
			r.X, r.Y, w, h)
	}
	return nil
}

// stored is the place of the region in the picture as stored; the upright picture is w by h.
func (r Region) stored(orientation, w, h int) Region {
	right, below := w-r.X-r.Width, h-r.Y-r.Height // pixels beyond the region
	switch orientation {
	case 2:
		r.X = right
	case 3:
		r.X, r.Y = right, below
	case 4:
		r.Y = below
	case 5:
		r.X, r.Y = r.Y, r.X
	case 6:
		r.X, r.Y = r.Y, right
	case 7:
		r.X, r.Y = below, right
	case 8:
		r.X, r.Y = below, r.X
	}
	if orientation >= 5 {
		r.Width, r.Height = r.Height, r.Width
	}
	return r
}

// crop reduces the source to r, a part of the frame as stored. Each plane then begins with the sample of the region's
// first pixel. Where a sample covers several pixels, some pixels may lie before the region: beforeX and beforeY are
// their numbers.
func (s *source) crop(r Region) {
	s.cropW, s.cropH = r.Width, r.Height
	s.scaledX, s.scaledY = ratio{1, 1}, ratio{1, 1}
	scaled := s.shrunk == 1 && (s.w != s.fullW || s.h != s.fullH)
	if r.Width == s.fullW && r.Height == s.fullH {
		if scaled {
			s.cropW, s.cropH = s.w, s.h
		}
		return
	}
	if scaled {
		s.scaledX, s.scaledY = ratio{s.fullW, s.w}, ratio{s.fullH, s.h}
	}
	// A sample covers covers/of pixels.
	span := func(from, length, covers, of, count int) (first, n, before int) {
		first = min(from*of/covers, count-1)
		return first, min(((from+length)*of-1)/covers, count-1) - first + 1, from*of - first*covers
	}
	one := func(p *plane) {
		x, w, fx := span(r.X, r.Width, p.subX*s.shrunk*s.scaledX.num, s.scaledX.den, p.w)
		y, h, fy := span(r.Y, r.Height, p.subY*s.shrunk*s.scaledY.num, s.scaledY.den, p.h)
		if p.rows != nil {
			p.x, p.y = p.x+x*p.step, y
		} else {
			p.pix = p.pix[y*p.stride+x*p.step:]
		}
		p.w, p.h, p.beforeX, p.beforeY = w, h, fx, fy
	}
	for c := range s.model.planes() {
		one(&s.planes[c])
	}
	if s.hasAlpha {
		one(&s.alpha)
	}
	across := func(length int, k ratio) int { n := s.shrunk * k.num; return (length*k.den + n - 1) / n }
	s.w, s.h = across(r.Width, s.scaledX), across(r.Height, s.scaledY)
}
