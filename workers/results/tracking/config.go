package tracking

import (
	"cmp"
	"fmt"
	"time"

	"millrace/internal/setting"
)

// Config configures how boxes are tracked. A zero field takes its default. Configs are
// comparable with ==.
type Config struct {
	IoU     float64       `yaml:"track_iou" default:"0.2" above:"0" below:"1" help:"least overlap of a prediction and its box"`
	MinHits int           `yaml:"track_hits" default:"2" min:"1" max:"100" help:"number of consecutive frames with the box until it gets an id"`
	MaxAge  time.Duration `yaml:"track_age" default:"500ms" max:"1h" help:"longest time without a box after which an id ends"`
	Max     int           // most tracks at once, and most boxes of a frame that are tracked (the first ones); 0 = MaxTracks

	// A box with a lower score can continue a track.
	Score float64 `yaml:"track_score" unset:"any" min:"0" max:"1" help:"least score of a box that begins a track; any box can continue one"`
	// With it, ids are lost as soon as a model misclassifies one box in 20.
	SameClass bool `yaml:"track_class" help:"an id keeps its first class: for objects that cross each other, and a model that seldom misclassifies"`
}

// MaxTracks is the largest Config.Max: the time of the assignment grows with its cube.
const MaxTracks = 256

// Validate returns an error that lists every field out of bounds.
func (c Config) Validate() error {
	errs := setting.Of("", &c).Check()
	if c.Max < 0 || c.Max > MaxTracks {
		errs = append(errs, fmt.Errorf("max: %d is not between 1 and %d", c.Max, MaxTracks))
	}
	return setting.Join(errs...)
}

func (c Config) withDefaults() Config {
	setting.Fill(&c)
	c.Max = cmp.Or(c.Max, MaxTracks)
	return c
}
