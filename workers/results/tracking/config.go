package tracking

import (
	"cmp"
	"fmt"
	"time"

	"millrace/internal/setting"
)

// Config says how boxes are followed. A zero field takes its default. Configs
// are comparable with ==.
type Config struct {
	IoU     float64       `yaml:"track_iou" default:"0.2" above:"0" below:"1" help:"least overlap of a prediction and its box"`
	MinHits int           `yaml:"track_hits" default:"2" min:"1" max:"100" help:"boxes in a row until there is an id"`
	MaxAge  time.Duration `yaml:"track_age" default:"500ms" max:"1h" help:"an id ends when it was not seen for longer"`
	Max     int           // tracks at once, and boxes of a frame that are looked at: the first ones; 0 = MaxTracks

	// Any box continues a track.
	Score float64 `yaml:"track_score" unset:"any" min:"0" max:"1" help:"least score of a box that begins to be followed; any box continues"`
	// It costs ids as soon as a model misreads one box in 20.
	SameClass bool `yaml:"track_class" help:"an id stays with the class it began with: for things that cross, and a model that is seldom wrong"`
}

// MaxTracks bounds Config.Max: the assignment's time grows with its cube.
const MaxTracks = 256

// Validate says everything that is out of bounds.
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
