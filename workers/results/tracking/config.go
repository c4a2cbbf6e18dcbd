package tracking

import (
	"cmp"
	"fmt"
	"time"

	"millrace/internal/setting"
)

// Config configures the tracking of boxes. A zero field takes the default. Configs are comparable with ==.
type Config struct {
	Kind    string        `yaml:"track_kind" default:"iou" words:"iou bytetrack" advanced:"yes" help:"iou assigns all boxes at once; bytetrack first boxes with a high score, then the rest"`
	IoU     float64       `yaml:"track_iou" default:"0.2" above:"0" below:"1" advanced:"yes" help:"least overlap of a predicted box and a found box"`
	MinHits int           `yaml:"track_hits" default:"2" min:"1" max:"100" advanced:"yes" help:"consecutive frames with a box before the box gets an id"`
	MaxAge  time.Duration `yaml:"track_age" unset:"500ms, or 1s with bytetrack" max:"1h" advanced:"yes" help:"longest time without a box before an id ends"`
	Max     int           // most tracks at once, and most tracked boxes of a frame (the first boxes); 0 = MaxTracks

	Score float64 `yaml:"track_score" unset:"any, or 0.5 with bytetrack" min:"0" max:"1" advanced:"yes" example:"0.6" help:"least score of a box that begins a track, 0 = unset; a box with a lower score can continue a track"`
	// With SameClass, a model that misclassifies one box in 20 already loses ids.
	SameClass bool `yaml:"track_class" advanced:"yes" help:"an id keeps the first class: for crossing objects and a model with few wrong classes"`
	// Each frame is decoded a second time, at a small size.
	Camera bool `yaml:"track_camera" advanced:"yes" help:"follow the motion of the camera, which shakes, pans or turns"`
}

// Values of Config.Kind.
const (
	IoU       = "iou"
	ByteTrack = "bytetrack"
)

// MaxTracks is the largest Config.Max: the time of the assignment of boxes in one heap grows with the cube of Max.
const MaxTracks = 256

// Validate returns an error that lists every field out of bounds.
func (c Config) Validate() error {
	errs := setting.TableOf("", &c).Check()
	if c.Max < 0 || c.Max > MaxTracks {
		errs = append(errs, fmt.Errorf("max: %d is not between 1 and %d", c.Max, MaxTracks))
	}
	return setting.Join(errs...)
}

func (c Config) withDefaults() Config {
	setting.Fill(&c)
	c.Max = cmp.Or(c.Max, MaxTracks)
	if c.Kind == ByteTrack {
		c.MaxAge, c.Score = cmp.Or(c.MaxAge, time.Second), cmp.Or(c.Score, 0.5)
	}
	c.MaxAge = cmp.Or(c.MaxAge, 500*time.Millisecond)
	return c
}
