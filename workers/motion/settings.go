package motion

import "millrace/stream"

// Settings of a Detector. Zero fields take the defaults.
type Settings struct {
	// Width and Height of the pictures that the detector works on, in pixels.
	Width, Height int
	// Threshold is how far a pixel must differ from the background, as a share
	// of the range from black to white. Where the picture is noisy, more is asked
	// for.
	Threshold float64
	// MinArea is how much of the picture must move, as a share of its area.
	MinArea float64
	// Learn is the share of the difference that the background takes over from
	// each frame. What stands still for 2/Learn frames becomes background.
	Learn float64
}

// Defaults of Settings.
const (
	DefaultWidth     = 320
	DefaultHeight    = 240
	DefaultThreshold = 0.024
	DefaultMinArea   = 0.0007
	DefaultLearn     = 0.01
)

// Bounds of Settings.
const (
	minSide, maxSide           = 16, 2048
	minThreshold, maxThreshold = 1.0 / 256, 0.9
	minLearn, maxLearn         = 0.0005, 0.5
)

// withDefaults fills in zero fields and names the first one out of bounds.
func (s Settings) withDefaults() (Settings, error) {
	or(&s.Width, DefaultWidth)
	or(&s.Height, DefaultHeight)
	or(&s.Threshold, DefaultThreshold)
	or(&s.MinArea, DefaultMinArea)
	or(&s.Learn, DefaultLearn)
	switch {
	case s.Width < minSide || s.Width > maxSide:
		return s, outOf("width", s.Width, "%d to %d pixels", minSide, maxSide)
	case s.Height < minSide || s.Height > maxSide:
		return s, outOf("height", s.Height, "%d to %d pixels", minSide, maxSide)
	case !(s.Threshold >= minThreshold && s.Threshold <= maxThreshold):
		return s, outOf("threshold", s.Threshold, "%.3g to %g, a share of the range from black to white", minThreshold, maxThreshold)
	case !(s.MinArea > 0 && s.MinArea <= 1):
		return s, outOf("min_area", s.MinArea, "more than 0 and at most 1, a share of the picture's area")
	case !(s.Learn >= minLearn && s.Learn <= maxLearn):
		return s, outOf("learn", s.Learn, "%g to %g, a share a frame", minLearn, maxLearn)
	}
	return s, nil
}

func or[T int | float64](p *T, def T) {
	if *p == 0 {
		*p = def
	}
}

func outOf(key string, value any, want string, args ...any) error {
	return stream.Errorf(stream.InvalidArgument, key, "is %v: want "+want, append([]any{value}, args...)...)
}

// keys are the load parameters, with what they mean.
var keys = map[string]string{
	"width":     "width in pixels of the picture that is searched (320)",
	"height":    "height in pixels of the picture that is searched (240)",
	"threshold": "how far a pixel must differ from the background, of 1 (0.024)",
	"min_area":  "how much of the picture must move, of 1 (0.0007)",
	"learn":     "how fast the background follows, of 1 a frame (0.01)",
}

// settingsOf reads load parameters. What is missing takes its default.
func settingsOf(p stream.Params) (Settings, error) {
	var s Settings
	for key, to := range map[string]*int{"width": &s.Width, "height": &s.Height} {
		if v, ok := p[key]; ok {
			n, ok := v.(int64)
			if !ok || n < minSide || n > maxSide {
				return s, outOf(key, v, "%d to %d pixels", minSide, maxSide)
			}
			*to = int(n)
		}
	}
	for key, to := range map[string]*float64{"threshold": &s.Threshold, "min_area": &s.MinArea, "learn": &s.Learn} {
		if v, ok := p[key]; ok {
			f, ok := number(v)
			if !ok || f == 0 {
				return s, outOf(key, v, "a number above 0, or leave it out for the default")
			}
			*to = f
		}
	}
	return s.withDefaults()
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}
