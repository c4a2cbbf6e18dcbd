package clips

import (
	"slices"
	"time"

	"millrace/stream/coded"
	"millrace/stream/rules"
)

// Settings are the clips of one stream. The zero value has none.
type Settings struct {
	On     []string       `json:"on" unset:"no clips" example:"cross, dwell" advanced:"yes" help:"types of events that make a clip of the video (docs/events.md); always = record all the time"`
	Before *time.Duration `json:"before" default:"5s" min:"0s" max:"5m" advanced:"yes" help:"time of the video before an event in its clip"`
	After  *time.Duration `json:"after" default:"5s" min:"0s" max:"1h" advanced:"yes" help:"time of the video after an event in its clip; events in this time lengthen the clip"`
	Length time.Duration  `json:"length" default:"10m" min:"1s" max:"24h" advanced:"yes" help:"longest clip: the video goes on in another clip"`
}

// Always is the word in Settings.On for a recording all the time.
const Always = "always"

// Enabled reports whether there are clips.
func (s *Settings) Enabled() bool { return len(s.On) > 0 }

// OnEvents reports whether an event can make a clip.
func (s *Settings) OnEvents() bool { return s.Enabled() && !s.always() }

func (s *Settings) always() bool { return slices.Contains(s.On, Always) }

// Validate makes the checks beyond the tags. A stream without rules has no events: rules may come later.
func (s *Settings) Validate() error {
	if err := checkTypes(s.On); err != nil {
		return err
	}
	if !s.Enabled() && (s.Before != nil || s.After != nil || s.Length != 0) {
		return coded.Errorf(coded.InvalidArgument, "on",
			"is missing: want the types of the events of clips, such as cross, or %s", Always)
	}
	return nil
}

// checkTypes returns an error for words that are no types of events.
func checkTypes(on []string) error {
	for _, t := range on {
		if t != Always && !slices.Contains(rules.EventTypes, rules.EventType(t)) {
			return coded.Errorf(coded.InvalidArgument, "on", "%.140q is no type of event: want some of %s; or %s", t,
				rules.TypesText(), Always)
		}
	}
	return nil
}

// ClientSettings are the clips of the streams that clients send. Only the server's configuration has the settings.
type ClientSettings struct {
	On     []string       `yaml:"on" unset:"no clips" example:"cross" advanced:"yes" help:"types of events that make a clip of a client's stream (docs/events.md#clips-of-clients); always = record all the time"`
	Before *time.Duration `yaml:"before" default:"5s" min:"0s" max:"5m" advanced:"yes" help:"time of the video before an event in its clip"`
	After  *time.Duration `yaml:"after" default:"5s" min:"0s" max:"1h" advanced:"yes" help:"time of the video after an event in its clip; events in this time lengthen the clip"`
	Length time.Duration  `yaml:"length" default:"10m" min:"1s" max:"24h" advanced:"yes" help:"longest clip: the video goes on in another clip"`

	Memory   int64 `yaml:"memory" default:"64MiB" min:"1MiB" max:"64GiB" unit:"bytes" advanced:"yes" help:"most bytes of compressed video that all client streams keep in memory; part of memory.budget. Each stream keeps clips.memory at most"`
	MaxBytes int64 `yaml:"max_bytes" unset:"a quarter of clips.max_bytes" example:"4GiB" min:"1MiB" unit:"bytes" advanced:"yes" help:"most bytes of clips of client streams, part of clips.max_bytes; beyond, the oldest are removed, unless they are favourites"`
}

// settings returns the settings as of a stream.
func (s *ClientSettings) settings() Settings {
	return Settings{On: s.On, Before: s.Before, After: s.After, Length: s.Length}
}

// Enabled reports whether client streams have clips.
func (s *ClientSettings) Enabled() bool { return len(s.On) > 0 }

// Validate makes the checks beyond the tags.
func (s *ClientSettings) Validate() error { return checkTypes(s.On) }
