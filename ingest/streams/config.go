package streams

import (
	"strings"
	"time"

	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/setting"
	"millrace/stream"
)

// Config is one stream. JSON names are those of the configuration and of REST.
type Config struct {
	Name     string        `json:"name" request:"any" help:"of the stream"`
	Source   string        `json:"source" request:"any" help:"a file, a device, exec:PROGRAM, folder:PATH or an address"`
	Model    string        `json:"model" request:"any" help:"that sees its frames"`
	Version  string        `json:"version" unset:"any" request:"any" help:"of the model"`
	Policy   string        `json:"policy" words:"latest every" default:"latest" request:"any" help:"whether only the newest frame is analysed, or each"`
	MaxAge   time.Duration `json:"max_age_ms" unit:"ms" unset:"the model's" request:"any" help:"a frame that would be answered older is dropped"`
	Deadline time.Duration `json:"deadline_ms" unit:"ms" unset:"the model's" request:"any" help:"the same, for each frame"`
	MaxFPS   float64       `json:"max_fps" unset:"the model's" request:"any" help:"frames that come sooner are dropped"`
	Window   int           `json:"window" unset:"the model's" request:"any" help:"frames on their way at once"`
	Priority string        `json:"priority" words:"normal high low" unset:"the model's" request:"any" help:"of its frames among those of other streams"`
	FPS      float64       `json:"fps" min:"0.001" max:"1000" unset:"all of a video, 1 picture of a folder" request:"any" help:"frames taken from the source a second, at most"`
	Loop     bool          `json:"loop" request:"any" help:"a video or folder with an end starts over"`
	Paused   bool          `json:"paused" request:"any" help:"no frame is analysed until it is resumed"`

	// Settings are those of the source's kind; nil = none are set.
	Settings sources.Settings `json:"-"`
	// Sinks are where results go beside the watchers, one of a kind at most.
	Sinks []sinks.Settings `json:"-"`
}

// Validate says the first thing that is wrong, as *stream.Error about the field.
func (c Config) Validate() error {
	bad := func(field, format string, args ...any) error {
		return stream.Errorf(stream.InvalidArgument, field, format, args...)
	}
	switch {
	case !goodName(c.Name):
		return bad("name", "%.140q is no name: want 1 to 128 letters, digits, dots, dashes or underscores", c.Name)
	case c.Source == "":
		return bad("source", "is missing: want the address of a video, such as rtsp://HOST/PATH")
	case len(c.Source) > 4096:
		return bad("source", "is longer than 4096 bytes")
	case c.Model == "":
		return bad("model", "is missing: want the name of a model")
	}
	if errs := draftOf(c).table.Check(); len(errs) > 0 {
		return errs[0]
	}
	settings, err := sources.Settle(c.Source, c.Settings)
	if err == nil {
		err = settings.Validate(c.Source, false)
	}
	if err != nil {
		return err
	}
	if _, err := c.policy(); err != nil {
		return err
	}
	for i, k := range c.Sinks {
		if err := k.Validate(); err != nil {
			return err
		}
		for _, o := range c.Sinks[:i] {
			if sameType(k, o) {
				return bad("sinks."+sinks.Of(k).Name, "is there twice")
			}
		}
	}
	return nil
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
func (c Config) policy() (stream.Policy, error) {
	setting.Fill(&c)
	p := stream.Policy{Mode: stream.Mode(c.Policy), MaxAge: c.MaxAge, Deadline: c.Deadline, MaxFPS: c.MaxFPS, Window: c.Window}
	var ok bool
	if p.Priority, ok = priorities[c.Priority]; !ok {
		return p, stream.Errorf(stream.InvalidArgument, "priority", "%.40q is no priority: want normal, high or low", c.Priority)
	}
	return p, p.Validate()
}

var priorities = map[string]stream.Priority{"": stream.Normal, "normal": stream.Normal, "high": stream.High, "low": stream.Low}

// goodName refuses names that mean something else in paths or on command lines.
func goodName(s string) bool {
	if s == "" || len(s) > 128 || s[0] == '.' || s[0] == '-' {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) < 0
}
