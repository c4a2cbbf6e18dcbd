package streams

import (
	"slices"

	"millrace/ingest/clips"
	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/stream/rules"
)

// Config is one stream. JSON names equal the names in the configuration and in REST.
type Config struct {
	Name    string        `json:"name" form:"name" request:"any" help:"name of the stream"`
	Source  string        `json:"source" request:"any" help:"where frames come from: a file, device, program or address, such as clip.mp4, rtsp://HOST/PATH or folder:PATH"`
	Model   string        `json:"model" request:"any" help:"the model that gets the frames; several models: see models"`
	Version string        `json:"version" unset:"any" request:"any" advanced:"yes" help:"version of the model"`
	Policy  stream.Policy `json:",inline" request:"any" unset:"the model's"`
	Models  []ModelConfig `json:"models" request:"any" advanced:"yes" help:"several models that get the frames, instead of model; an entry inherits the policy of the stream"`
	FPS     float64       `json:"fps" min:"0.001" max:"1000" unset:"all of a video, 1 picture of a folder" request:"any" example:"5" help:"most frames a second taken from the source"`
	Loop    bool          `json:"loop" request:"any" advanced:"yes" help:"start again at the end of a video or folder"`
	Paused  bool          `json:"paused" request:"any" advanced:"yes" help:"run no frame until the stream is resumed"`

	Rules rules.Rules    `json:"rules" request:"any" advanced:"yes"`
	Clips clips.Settings `json:"clips" request:"any" advanced:"yes"`

	// Settings are the settings of the source's kind; nil when none is set.
	Settings sources.Settings `json:"-"`
	// Sinks receive the results, besides the watchers. A stream has at most one sink of each kind.
	Sinks []sinks.Settings `json:"-"`
}

// Validate returns all errors, each with its field.
func (c Config) Validate() error {
	errs := draftOf(c).table.Check()
	bad := func(field, format string, args ...any) {
		errs = append(errs, stream.Errorf(stream.InvalidArgument, field, format, args...))
	}
	if c.Name == "" {
		bad("name", "is missing: want the stream's own name")
	}
	errs = append(errs, c.validateModels()...)
	switch {
	case c.Source == "":
		bad("source", "is missing: want where frames come from, such as rtsp://HOST/PATH")
	case len(c.Source) > 4096:
		bad("source", "is longer than 4096 bytes")
	default:
		settings, err := sources.Settle(c.Source, c.Settings)
		if err == nil {
			err = settings.Validate(c.Source, false)
			scheme, k, _ := sources.Classify(c.Source)
			if c.FPS != 0 && !k.FPS {
				bad("fps", "is not for %s sources, which have a rate of their own: leave it out", scheme)
			}
			if c.Loop && !slices.Contains(k.Loop, scheme) {
				bad("loop", "is for videos and folders with an end, and %s sources have none: leave it out", scheme)
			}
		}
		errs = append(errs, err)
	}
	for _, err := range setting.Split(c.Rules.Validate()) {
		errs = append(errs, coded.PrefixField("rules", err))
	}
	if err := c.Clips.Validate(); err != nil {
		errs = append(errs, coded.PrefixField("clips", err))
	}
	for i, k := range c.Sinks {
		errs = append(errs, k.Validate())
		for _, o := range c.Sinks[:i] {
			if sameType(k, o) {
				bad("sinks."+sinks.KindOf(k).Name, "is given twice")
			}
		}
	}
	return setting.Join(errs...)
}

// settings returns the settings of the source's kind. c is valid.
func (c Config) settings() sources.Settings {
	s, _ := sources.Settle(c.Source, c.Settings)
	return s
}

// sourceSettings returns the source's settings with a value: fps, loop, and the settings of the source's kind.
func (c Config) sourceSettings() map[string]any {
	out := map[string]any{}
	if c.Settings != nil {
		out = setting.TableOf("", c.Settings).Object()
	}
	if c.FPS != 0 {
		out["fps"] = c.FPS
	}
	if c.Loop {
		out["loop"] = true
	}
	return out
}

// transport returns the transport of the source's packets, such as tcp or udp, or "" for a kind of source without
// transports. c must be valid.
func (c Config) transport() string {
	if _, k, err := sources.Classify(c.Source); err == nil && k.Transport != nil {
		return k.Transport(c.settings(), c.Source)
	}
	return ""
}
