package tracking

import (
	"cmp"
	"fmt"
	"time"
)

// Config says how boxes are followed. A zero field takes its default. Configs
// are comparable with ==.
type Config struct {
	IoU     float64       // least overlap of a prediction and its box; 0.2
	MinHits int           // boxes in a row until a track has an id; 2
	MaxAge  time.Duration // a track without a box for longer ends; 500ms
	Max     int           // tracks at once, and boxes of a frame that are looked at: the first ones; 256

	// Score is the least score of a box that begins a track; any box continues
	// one. 0 = every box may begin one.
	Score float64
	// SameClass keeps a track to boxes of the class that it began with. It helps
	// where things cross, and costs ids as soon as a model misreads one box in 20.
	SameClass bool
}

// MaxTracks bounds Config.Max: the assignment's time grows with its cube.
const MaxTracks = 256

// Validate names the first field that is out of bounds.
func (c Config) Validate() error {
	switch {
	case !(c.IoU >= 0 && c.IoU < 1):
		return fmt.Errorf("iou: %v is not between 0 and 1", c.IoU)
	case c.MinHits < 0 || c.MinHits > 100:
		return fmt.Errorf("min_hits: %d is not between 1 and 100", c.MinHits)
	case c.MaxAge < 0 || c.MaxAge > time.Hour:
		return fmt.Errorf("max_age: %v is not between 0s and 1h", c.MaxAge)
	case c.Max < 0 || c.Max > MaxTracks:
		return fmt.Errorf("max: %d is not between 1 and %d", c.Max, MaxTracks)
	case !(c.Score >= 0 && c.Score <= 1):
		return fmt.Errorf("score: %v is not between 0 and 1", c.Score)
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.IoU = cmp.Or(c.IoU, 0.2)
	c.MinHits = cmp.Or(c.MinHits, 2)
	c.MaxAge = cmp.Or(c.MaxAge, 500*time.Millisecond)
	c.Max = cmp.Or(c.Max, MaxTracks)
	return c
}
