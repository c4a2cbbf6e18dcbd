package streams

import (
	"cmp"

	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/setting"
	"millrace/stream"
)

// Config is one stream. JSON names are those of the configuration and of REST.
type Config struct {
	Name    string        `json:"name" form:"name" request:"any" help:"of the stream"`
	Source  string        `json:"source" request:"any" help:"a file, a device, exec:PROGRAM, folder:PATH or an address"`
	Model   string        `json:"model" request:"any" help:"that sees its frames"`
	Version string        `json:"version" unset:"any" request:"any" help:"of the model"`
	Policy  stream.Policy `json:",inline" request:"any" unset:"the model's"`
	FPS     float64       `json:"fps" min:"0.001" max:"1000" unset:"all of a video, 1 picture of a folder" request:"any" help:"frames taken from the source a second, at most"`
	Loop    bool          `json:"loop" request:"any" help:"a video or folder with an end starts over"`
	Paused  bool          `json:"paused" request:"any" help:"no frame is analysed until it is resumed"`

	// Settings are those of the source's kind; nil = none are set.
	Settings sources.Settings `json:"-"`
	// Sinks are where results go beside the watchers, one of a kind at most.
	Sinks []sinks.Settings `json:"-"`
}

// Validate says everything that is wrong, each error about the field.
func (c Config) Validate() error {
	errs := draftOf(c).table.Check()
	bad := func(field, format string, args ...any) {
		errs = append(errs, stream.Errorf(stream.InvalidArgument, field, format, args...))
	}
	if c.Name == "" {
		bad("name", "is missing: want the stream's own name")
	}
	if c.Model == "" {
		bad("model", "is missing: want the name of a model")
	}
	switch {
	case c.Source == "":
		bad("source", "is missing: want the address of a video, such as rtsp://HOST/PATH")
	case len(c.Source) > 4096:
		bad("source", "is longer than 4096 bytes")
	default:
		settings, err := sources.Settle(c.Source, c.Settings)
		if err == nil {
			err = settings.Validate(c.Source, false)
		}
		errs = append(errs, err)
	}
	for i, k := range c.Sinks {
		errs = append(errs, k.Validate())
		for _, o := range c.Sinks[:i] {
			if sameType(k, o) {
				bad("sinks."+sinks.Of(k).Name, "is there twice")
			}
		}
	}
	return setting.Join(errs...)
}

// settings are those of the source's kind. c is valid.
func (c Config) settings() sources.Settings {
	s, _ := sources.Settle(c.Source, c.Settings)
	return s
}

// transport is how packets of the source come: tcp or udp, or "" where it is not
// RTSP. c is valid.
func (c Config) transport() string {
	if s, ok := c.settings().(interface{ RTSPTransport(string) string }); ok {
		return s.RTSPTransport(c.Source)
	}
	return ""
}

// policy is the stream's, with Latest unless asked otherwise: a camera's frames
// do not wait.
func (c Config) policy() stream.Policy {
	p := c.Policy
	p.Mode = cmp.Or(p.Mode, stream.Latest)
	return p
}
