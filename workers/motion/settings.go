package motion

import (
	"millrace/internal/setting"
)

// Settings of a Detector. Zero fields take the defaults.
type Settings struct {
	Width  int `yaml:"width" default:"320" min:"16" max:"2048" request:"any" advanced:"yes" help:"width in pixels of the searched picture"`
	Height int `yaml:"height" default:"240" min:"16" max:"2048" request:"any" advanced:"yes" help:"height in pixels of the searched picture"`
	// Threshold is a share of the range from black to white. In a
	// noisy picture a pixel must differ by more.
	Threshold float64 `yaml:"threshold" default:"0.024" min:"0.00390625" max:"0.9" request:"any" advanced:"yes" help:"least difference between a moving pixel and the background, 0 to 1"`
	// MinArea is a share of the picture's area.
	MinArea float64 `yaml:"min_area" default:"0.0007" above:"0" max:"1" request:"any" advanced:"yes" help:"least area of a moving object, as a share of the picture"`
	// Learn is the share of the difference learned by the background from each frame. An object that stands still for
	// 2/Learn frames becomes background.
	Learn float64 `yaml:"learn" default:"0.01" min:"0.0005" max:"0.5" request:"any" advanced:"yes" help:"share of the difference that the background learns from each frame"`
}

// withDefaults fills in zero fields, and returns an error for each field out of bounds.
func (s Settings) withDefaults() (Settings, error) {
	t := setting.TableOf("", &s)
	t.Fill()
	return s, setting.Join(t.Check()...)
}
