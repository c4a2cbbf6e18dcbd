package motion

import (
	"fmt"
	"slices"
)

// Box is one moving object, in pixels of the searched picture. X2 and Y2 are exclusive. Score, 0 to 1, is higher for
// more contrast and a larger size.
type Box struct {
	X1, Y1, X2, Y2 float32
	Score          float32
}

// MaxBoxes is the most boxes of a picture; the largest boxes are kept.
const MaxBoxes = 64

const (
	// quietFrames is the number of frames without a change after which a pixel may belong to a ghost. Ghosts are
	// searched every ghostEvery frames.
	quietFrames, ghostEvery = 20, 4
	// warmUp is the number of first frames without boxes, while the background is learned.
	warmUp = 10
	// maxChanged is the largest share of the picture that may change at once. A larger share means a change of the
	// light or the camera: the background is learned again.
	maxChanged = 0.7
	// mergeWidth: parts closer than 2/mergeWidth of the picture's width are one object.
	mergeWidth = 300
	// neckWidth: parts joined by less than 2/neckWidth of the picture's width are two
	// objects.
	neckWidth = 53
)

// Detector finds moving objects in one stream of grey pictures, for one goroutine at a time.
type Detector struct {
	search
	seen *background
}

// NewDetector checks the settings. Errors name the setting.
func NewDetector(s Settings) (*Detector, error) {
	s, err := s.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Detector{search: newSearch(s), seen: newBackground(s.Width * s.Height)}, nil
}

// Settings returns the settings with the defaults filled in.
func (d *Detector) Settings() Settings { return d.set }

// Detect processes the next picture of the stream: Height rows of Width bytes, 0 is black. The boxes, the largest
// first, are valid until the next call. Detect panics for a wrong size, and allocates nothing after the first frames.
func (d *Detector) Detect(gray []byte) []Box { return d.detect(d.seen, gray) }

// search is the detector without a stream's background: the settings, in the units of the loop, and scratch memory. A
// search serves any number of backgrounds, one at a time.
type search struct {
	set        Settings
	least      int32 // Threshold, times 256
	share      int32 // Learn, of 1<<shareBits
	minArea    int   // pixels
	merge      int   // pixels
	neckRadius int   // pixels
	tick       int   // frames per tick of background.age
	quiet      uint8 // ticks after which an unchanged pixel may belong to a ghost
	old        uint8 // ticks after which an unchanged pixel becomes background

	raw, clean, grown, tmp, still, cores mask
	rows                                 []uint64
	parts, core                          parts
	boxes                                []Box
}

func newSearch(s Settings) search {
	frames := int(2 / s.Learn)
	tick := (frames + 249) / 250
	w, h := s.Width, s.Height
	m := newMask(w, h)
	return search{
		set: s, least: int32(s.Threshold * 255 * one), share: int32(s.Learn*(1<<shareBits) + 0.5),
		minArea: max(int(s.MinArea*float64(w*h)), 1), merge: max((w+mergeWidth/2)/mergeWidth, 1),
		tick: tick, quiet: uint8(max(quietFrames/tick, 1)), old: uint8(max(frames/tick, 1)),
		raw: m, clean: newMask(w, h), grown: newMask(w, h), tmp: newMask(w, h), still: newMask(w, h),
		cores: newMask(w, h), neckRadius: (w + neckWidth/2) / neckWidth,
		rows: make([]uint64, 6*m.stride),
	}
}

func (s *search) detect(b *background, gray []byte) []Box {
	if len(gray) != s.set.Width*s.set.Height {
		panic(fmt.Sprintf("motion: %d bytes for a picture of %dx%d", len(gray), s.set.Width, s.set.Height))
	}
	s.boxes = s.boxes[:0]
	if b.frames == 0 {
		b.start(gray)
		return s.boxes
	}
	share := s.share
	if b.frames < warmUp {
		share = max(share, int32(1<<shareBits/(b.frames+1)))
		b.initNoise(gray)
	}
	b.subtract(gray, &s.raw, s.least, share)
	b.restoreBefore(gray, &s.raw, s.least)
	s.clean.majority(&s.raw, s.rows)
	if float64(s.clean.count()) > maxChanged*float64(len(gray)) {
		b.start(gray)
		return s.boxes
	}
	s.fill()
	s.erode()
	s.grown.grow(&s.clean, &s.tmp, s.merge)
	s.parts.find(&s.grown)
	s.measure(b, gray)
	s.learnParts(b, gray, share)
	s.split()
	if b.frames > warmUp {
		s.report()
	}
	if b.frames%ghostEvery == 0 {
		s.removeGhosts(b, gray)
	}
	copy(b.prev, gray)
	b.frames++
	return s.boxes
}

// report makes boxes of the moving parts.
func (s *search) report() {
	for i := range s.parts.list {
		p := &s.parts.list[i]
		if p.class != moving {
			continue
		}
		contrast := float32(p.diff) / float32(p.area) / float32(s.least)
		size := float32(p.area) / float32(p.area+s.minArea)
		s.boxes = append(s.boxes, Box{
			X1: float32(p.x1), Y1: float32(p.y1), X2: float32(p.x2), Y2: float32(p.y2),
			Score: contrast / (1 + contrast) * size,
		})
	}
	slices.SortFunc(s.boxes, func(a, b Box) int {
		switch x, y := a.area(), b.area(); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	s.boxes = s.boxes[:min(len(s.boxes), MaxBoxes)]
}

func (b Box) area() float32 { return (b.X2 - b.X1) * (b.Y2 - b.Y1) }
