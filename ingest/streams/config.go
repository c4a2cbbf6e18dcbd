package streams

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/video"
	"millrace/stream"
)

// Config is one stream. JSON names are those of the configuration and of REST.
type Config struct {
	Name       string  `json:"name"`
	Source     string  `json:"source"`                   // a file, device, command or address
	Transport  string  `json:"rtsp_transport,omitempty"` // of an rtsp or rtsps source: tcp or udp; "" = tcp
	Model      string  `json:"model"`
	Version    string  `json:"version,omitempty"`     // "" = any
	Policy     string  `json:"policy,omitempty"`      // latest or every; "" = latest
	MaxAgeMS   int     `json:"max_age_ms,omitempty"`  // 0 = the model's, as for all that follow
	DeadlineMS int     `json:"deadline_ms,omitempty"` //
	MaxFPS     float64 `json:"max_fps,omitempty"`     // frames that come sooner are dropped
	Window     int     `json:"window,omitempty"`      //
	Priority   string  `json:"priority,omitempty"`    // normal, high or low
	FPS        float64 `json:"fps,omitempty"`         // frames taken from the source, at most; 0 = all
	Width      int     `json:"width,omitempty"`       // pixels to scale frames to; 0 = as they come
	Loop       bool    `json:"loop,omitempty"`        // a video with an end starts over
	Paused     bool    `json:"paused,omitempty"`
	Sinks      Sinks   `json:"sinks"`
}

// Sinks are where results go beside the watchers.
type Sinks struct {
	File          string `json:"file,omitempty"`           // JSON lines are appended to it
	MaxSize       int64  `json:"max_size,omitempty"`       // bytes at which the file is put aside; 0 = 64 MiB
	Webhook       string `json:"webhook,omitempty"`        // an address that results are posted to
	WebhookSecret string `json:"webhook_secret,omitempty"` // signs them
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
	case !(c.FPS == 0 || c.FPS >= 0.001 && c.FPS <= 1000):
		return bad("fps", "%v is neither 0 nor between 0.001 and 1000", c.FPS)
	case c.Width != 0 && (c.Width < 16 || c.Width > 16384):
		return bad("width", "%d is neither 0 nor between 16 and 16384 pixels", c.Width)
	case c.Sinks.MaxSize != 0 && c.Sinks.MaxSize < 1<<10:
		return bad("sinks.max_size", "%d is less than 1KiB", c.Sinks.MaxSize)
	}
	scheme, err := video.ClassifyURL(c.Source)
	if err != nil {
		return bad("source", "%s", err.Error())
	}
	rtsp := scheme == video.SchemeRTSP || scheme == video.SchemeRTSPS
	switch {
	case c.Transport == "":
	case !rtsp:
		return bad("rtsp_transport", "is for rtsp and rtsps sources, and this one is %s: leave it out", scheme)
	case c.Transport != "tcp" && c.Transport != "udp":
		return bad("rtsp_transport", "%.40q is no transport: want tcp or udp", c.Transport)
	case c.Transport == "udp" && scheme == video.SchemeRTSPS:
		return bad("rtsp_transport", "udp is for rtsp sources, rtsps is read over tcp only: leave it out, or name an rtsp address")
	}
	if _, err := c.policy(); err != nil {
		return err
	}
	return c.Sinks.validate()
}

func (s Sinks) validate() error {
	if s.Webhook == "" {
		if s.WebhookSecret != "" {
			return stream.Errorf(stream.InvalidArgument, "sinks.webhook_secret", "has no sinks.webhook to sign for")
		}
		return nil
	}
	u, err := url.Parse(s.Webhook)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return stream.Errorf(stream.InvalidArgument, "sinks.webhook", "is no http or https address")
	}
	return nil
}

// fromRequest refuses what only the configuration may ask for.
func (c Config) fromRequest() error {
	if c.Sinks.File != "" {
		return stream.Errorf(stream.PermissionDenied, "sinks.file", "comes from the server's configuration only: read the results at /v2/streams/%s/results", c.Name)
	}
	return sources.Check("source", c.Source)
}

// transport is how packets of the source come: tcp or udp, or "" where it is not
// RTSP. c is valid.
func (c Config) transport() string {
	switch scheme, _ := video.ClassifyURL(c.Source); scheme {
	case video.SchemeRTSP, video.SchemeRTSPS:
		return cmp.Or(c.Transport, "tcp")
	}
	return ""
}

// policy is the stream's, with Latest unless asked otherwise: a camera's frames
// do not wait.
func (c Config) policy() (stream.Policy, error) {
	p := stream.Policy{
		Mode: stream.Mode(c.Policy), MaxAge: time.Duration(c.MaxAgeMS) * time.Millisecond,
		Deadline: time.Duration(c.DeadlineMS) * time.Millisecond, MaxFPS: c.MaxFPS, Window: c.Window,
	}
	if p.Mode == "" {
		p.Mode = stream.Latest
	}
	var ok bool
	if p.Priority, ok = priorities[c.Priority]; !ok {
		return p, stream.Errorf(stream.InvalidArgument, "priority", "%.40q is no priority: want normal, high or low", c.Priority)
	}
	return p, p.Validate()
}

var priorities = map[string]stream.Priority{"": stream.Normal, "normal": stream.Normal, "high": stream.High, "low": stream.Low}

// goodName keeps names out of trouble in paths.
func goodName(s string) bool {
	if s == "" || len(s) > 128 || s[0] == '.' || s[0] == '-' {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) < 0
}
