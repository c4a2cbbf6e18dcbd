package main

import (
	"fmt"
	"testing"

	"millrace/config"
	"millrace/internal/codec"
	"millrace/internal/wire"
	"millrace/stream"
)

// Constants in code for the default or a limit of a setting equal the tag of the setting.
func TestConstantsAreThoseOfTheSettings(t *testing.T) {
	for _, c := range []struct {
		settings []config.Setting
		path     string
		def, rng string
	}{
		{config.Settings(), "http", defaultAddr, ""},
		{config.Settings(), "limits.max_pixels", fmt.Sprint(codec.DefaultMaxPixels), ""},
		{config.StreamSettings(), "window", "", fmt.Sprintf("1 to %d", stream.MaxWindow)},
		{config.StreamSettings(), "window", "", fmt.Sprintf("1 to %d", wire.MaxWindow)},
		{config.ModelSettings(), "stream.window", "", fmt.Sprintf("1 to %d", stream.MaxWindow)},
		{config.StreamSettings(), "width", "", fmt.Sprintf("%d to %d", minSide, maxSide)},
	} {
		found := false
		for _, s := range c.settings {
			if s.Path != c.path {
				continue
			}
			found = true
			if c.def != "" && s.Default != c.def || c.rng != "" && s.Range != c.rng {
				t.Errorf("%s: default %q, range %q; the constants say %q, %q", c.path, s.Default, s.Range, c.def, c.rng)
			}
		}
		if !found {
			t.Errorf("%s: not a setting", c.path)
		}
	}
}
