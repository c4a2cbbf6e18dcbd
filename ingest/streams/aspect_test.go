package streams_test

import (
	"testing"

	"millrace/ingest/sources"
	"millrace/ingest/streams"
)

// The report of a stream has the pixel aspect ratio of the frames, including frames scaled by the setting width.
func TestPixelAspect(t *testing.T) {
	wide := clip(t, 1, "-vf", "setsar=64/45")
	r := start(t, streams.Options{})
	for _, c := range []struct {
		name, source  string
		settings      sources.Settings
		width, height int
		want          float64
	}{
		{"file", wide, nil, 160, 120, 1.422222},
		{"http", served(t, wide), nil, 160, 120, 1.422222},
		{"scaled", wide, &sources.Video{Width: 50}, 50, 38, 1.441185}, // 37.5 lines are rounded
		{"square", clip(t, 1), nil, 160, 120, 1},
		{"unknown", clip(t, 1, "-vf", "setsar=0"), nil, 160, 120, 0},
	} {
		r.streams.Add(t, streams.Config{Name: c.name, Source: c.source, Settings: c.settings, Model: "eyes"})
		s := r.until(c.name, "its size", func(s shown) bool { return s.Width > 0 })
		if s.Width != c.width || s.Height != c.height || s.PixelAspect != c.want {
			t.Errorf("%s: %d x %d, pixel_aspect %v; want %d x %d, %v", c.name, s.Width, s.Height, s.PixelAspect,
				c.width, c.height, c.want)
		}
	}
}
