package client

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"time"

	"millrace/stream"
	"millrace/stream/rules"
)

// StreamConfig is the configuration of a server stream: a source read by the server, the model that runs the frames,
// and the sinks of the results. 0 and "" are the defaults of the server or the model.
type StreamConfig struct {
	Name       string      `json:"name"`
	Source     string      `json:"source"`          // an http, https, rtsp or rtsps address
	Model      string      `json:"model,omitempty"` // or several, in Models
	Version    string      `json:"version,omitempty"`
	Policy     stream.Mode `json:"policy,omitempty"`
	MaxAgeMS   int         `json:"max_age_ms,omitempty"`
	DeadlineMS int         `json:"deadline_ms,omitempty"`
	MaxFPS     float64     `json:"max_fps,omitempty"`  // frames above this rate are dropped
	Window     int         `json:"window,omitempty"`   // most frames in flight
	Priority   string      `json:"priority,omitempty"` // normal, high or low
	FPS        float64     `json:"fps,omitempty"`      // most frames per second that are taken from the source
	Loop       bool        `json:"loop,omitempty"`     // start a video again at its end

	Rules  *rules.Rules `json:"rules,omitempty"` // lines and zones
	Clips  *StreamClips `json:"clips,omitempty"`
	Paused bool         `json:"paused,omitempty"`

	// Models are the models of a stream with several models. Unset policy fields of a model take the policy of the
	// stream.
	Models []StreamModelConfig `json:"models,omitempty"`
	// Settings are further settings by their names in the configuration, for the kind of the source, for example
	// width and rtsp_transport.
	Settings map[string]any `json:"-"`
	// Sinks are the settings of sinks by their names: webhook, and webhook_secret to sign
	// the posts.
	Sinks map[string]any `json:"sinks,omitempty"`
}

// StreamModelConfig is a model of a server stream with several models.
type StreamModelConfig struct {
	Model      string      `json:"model"`
	Version    string      `json:"version,omitempty"`
	Policy     stream.Mode `json:"policy,omitempty"`
	MaxAgeMS   int         `json:"max_age_ms,omitempty"`
	DeadlineMS int         `json:"deadline_ms,omitempty"`
	MaxFPS     float64     `json:"max_fps,omitempty"`
	Window     int         `json:"window,omitempty"`
	Priority   string      `json:"priority,omitempty"`
}

// MarshalJSON writes all settings into a single object.
func (c StreamConfig) MarshalJSON() ([]byte, error) {
	type plain StreamConfig
	return withSettings(plain(c), c.Settings)
}

// withSettings writes the members of v and the settings into a single object.
func withSettings(v any, settings map[string]any) ([]byte, error) {
	own, err := json.Marshal(v)
	if err != nil || len(settings) == 0 {
		return own, err
	}
	var all map[string]any
	if err := json.Unmarshal(own, &all); err != nil {
		return nil, err
	}
	maps.Copy(all, settings)
	return json.Marshal(all)
}

// StreamClips are the clips of a server stream. Times are texts such as 5s; "" stands for the default, in a change for
// the present time.
type StreamClips struct {
	On     []string `json:"on"` // types of events, or always; none turns clips off
	Before string   `json:"before,omitempty"`
	After  string   `json:"after,omitempty"`
	Length string   `json:"length,omitempty"` // of the longest clip
}

// StreamChange holds changes of a running server stream. A nil field changes nothing, 0 and "" stand for the default
// of the server or the model.
type StreamChange struct {
	Source     *string      `json:"source,omitempty"` // the present one goes on until the new one has its first frame, or fails
	Model      *string      `json:"model,omitempty"`  // the only model from now on
	Policy     *stream.Mode `json:"policy,omitempty"`
	Paused     *bool        `json:"paused,omitempty"`
	MaxAgeMS   *int         `json:"max_age_ms,omitempty"`
	DeadlineMS *int         `json:"deadline_ms,omitempty"`
	MaxFPS     *float64     `json:"max_fps,omitempty"`
	Window     *int         `json:"window,omitempty"`
	Priority   *string      `json:"priority,omitempty"`

	Rules *rules.Rules `json:"rules,omitempty"` // all lines and zones; empty rules remove all
	Clips *StreamClips `json:"clips,omitempty"`

	// Models are changes of single models: a model missing in the stream is added.
	Models []StreamModelChange `json:"models,omitempty"`
	// Settings are further settings by their names in the configuration, for example fps.
	Settings map[string]any `json:"-"`
	// Sinks are settings of sinks by their names; "" removes a sink.
	Sinks map[string]any `json:"sinks,omitempty"`
}

// MarshalJSON writes all changes into a single object.
func (c StreamChange) MarshalJSON() ([]byte, error) {
	type plain StreamChange
	return withSettings(plain(c), c.Settings)
}

// StreamModelChange holds changes of one model of a server stream, by the model's name.
type StreamModelChange struct {
	Model      string       `json:"model"`
	Version    *string      `json:"version,omitempty"`
	Policy     *stream.Mode `json:"policy,omitempty"`
	MaxAgeMS   *int         `json:"max_age_ms,omitempty"`
	DeadlineMS *int         `json:"deadline_ms,omitempty"`
	MaxFPS     *float64     `json:"max_fps,omitempty"`
	Window     *int         `json:"window,omitempty"`
	Priority   *string      `json:"priority,omitempty"`
	Remove     bool         `json:"remove,omitempty"` // from the stream
}

// ServerStream is the state of a server stream.
type ServerStream struct {
	Name        string                   `json:"name"`
	Source      string                   `json:"source"`                   // without passwords
	Transport   string                   `json:"rtsp_transport,omitempty"` // tcp or udp, of an rtsp or rtsps source
	Model       string                   `json:"model,omitempty"`          // as are Version and Policy, of a stream with one model
	Version     string                   `json:"version,omitempty"`
	Models      []StreamModel            `json:"models"`
	Origin      string                   `json:"origin"`          // config or request
	State       string                   `json:"state"`           // connecting, running, waiting, ended or failed
	Since       time.Time                `json:"since"`           // of the state
	Retry       *time.Time               `json:"retry,omitempty"` // when a waiting stream tries again
	Error       *StreamFailure           `json:"error,omitempty"` // the last one
	Paused      bool                     `json:"paused"`
	Policy      StreamPolicy             `json:"policy,omitzero"`
	Width       int                      `json:"width,omitempty"` // of the frames, in pixels
	Height      int                      `json:"height,omitempty"`
	PixelAspect float64                  `json:"pixel_aspect,omitempty"` // width of a pixel of the frames by its height; 0 = unknown, which means 1
	FPS         float64                  `json:"fps,omitempty"`          // of the source, by its metadata, and at most its setting fps
	Measured    float64                  `json:"measured_fps"`           // frames per second that were read in the last ten seconds
	Settings    map[string]any           `json:"settings,omitempty"`     // of the source that are set, such as fps, width and decode
	Rules       *rules.Rules             `json:"rules,omitempty"`        // lines and zones
	Restarts    uint64                   `json:"restarts"`               // of the source
	Frames      uint64                   `json:"frames"`                 // read from the source
	Skipped     uint64                   `json:"skipped"`                // pictures of the source that became no frame, with decode reference or key
	Results     uint64                   `json:"results"`                // of these frames
	Errors      uint64                   `json:"errors"`
	Drops       map[stream.Reason]uint64 `json:"drops"`
	Lost        StreamLost               `json:"lost"`
	Last        *time.Time               `json:"last,omitempty"` // the newest result
	Watchers    int                      `json:"watchers"`       // of results and video
	Sinks       map[string]StreamSink    `json:"sinks"`          // by name: file, webhook and others
}

// StreamModel is one model of a server stream. The counts are of the endings of the model's frames.
type StreamModel struct {
	Model   string                   `json:"model"`
	Version string                   `json:"version,omitempty"`
	State   string                   `json:"state"` // connecting; running (model open); waiting (for the next try); ended
	Since   time.Time                `json:"since"`
	Retry   *time.Time               `json:"retry,omitempty"`
	Error   *StreamFailure           `json:"error,omitempty"` // why it waits, or why the newest frame failed
	Policy  StreamPolicy             `json:"policy"`
	Results uint64                   `json:"results"`
	Errors  uint64                   `json:"errors"`
	Drops   map[stream.Reason]uint64 `json:"drops"`
	Last    *time.Time               `json:"last,omitempty"`
}

// StreamFailure says why a stream waits or failed.
type StreamFailure struct {
	Code    stream.Code `json:"code"`
	Kind    string      `json:"kind,omitempty"` // of a source's failure, such as auth or refused
	Message string      `json:"message"`
}

// StreamPolicy is the policy in force.
type StreamPolicy struct {
	Policy     stream.Mode `json:"policy"`
	MaxAgeMS   int64       `json:"max_age_ms,omitempty"`
	DeadlineMS int64       `json:"deadline_ms,omitempty"`
	MaxFPS     float64     `json:"max_fps,omitempty"`
	Window     int         `json:"window,omitempty"`
	Priority   string      `json:"priority"`
}

// StreamLost counts losses by place.
type StreamLost struct {
	Frames  uint64 `json:"frames"`  // without free memory
	Results uint64 `json:"results"` // not delivered to any sink
	Lines   uint64 `json:"lines"`   // not delivered to slow watchers
	Video   uint64 `json:"video"`   // encoded pictures not delivered to slow watchers
}

// StreamSink counts the results, or events, for one sink.
type StreamSink struct {
	Sent    uint64 `json:"sent"`
	Retries uint64 `json:"retries"` // attempts after the first
	Lost    uint64 `json:"lost"`
	Waiting uint64 `json:"waiting"`         // neither sent nor lost
	Error   string `json:"error,omitempty"` // the last one
}

// ServerStreams lists the server streams, sorted by name.
func (c *Client) ServerStreams(ctx context.Context) ([]ServerStream, error) {
	var list struct {
		Streams []ServerStream `json:"streams"`
	}
	err := c.streams(ctx, http.MethodGet, "", nil, &list)
	return list.Streams, err
}

// ServerStream returns the server stream called name.
func (c *Client) ServerStream(ctx context.Context, name string) (s ServerStream, err error) {
	if name == "" {
		return s, errNoName()
	}
	err = c.streams(ctx, http.MethodGet, name, nil, &s)
	return s, err
}

// AddServerStream adds a server stream.
func (c *Client) AddServerStream(ctx context.Context, cfg StreamConfig) (s ServerStream, err error) {
	err = c.streams(ctx, http.MethodPost, "", cfg, &s)
	return s, err
}

// ChangeServerStream changes a running server stream: all of the change, or nothing.
func (c *Client) ChangeServerStream(ctx context.Context, name string, change StreamChange) (s ServerStream, err error) {
	err = c.streams(ctx, http.MethodPatch, name, change, &s)
	return s, err
}

// RemoveServerStream ends and removes a server stream, and returns after the removal.
func (c *Client) RemoveServerStream(ctx context.Context, name string) error {
	return c.streams(ctx, http.MethodDelete, name, nil, nil)
}

// ResetServerStream returns a stream to its configuration: requested changes are undone, and a removed stream comes
// back.
func (c *Client) ResetServerStream(ctx context.Context, name string) (s ServerStream, err error) {
	if name == "" {
		return s, errNoName()
	}
	err = c.doJSON(ctx, http.MethodPost, c.url(nil, "v2", "streams", name, "reset"), nil, &s)
	return s, err
}

// StreamCounts are the counts of the rules of a server stream.
type StreamCounts struct {
	Stream string        `json:"stream"`
	Models []ModelCounts `json:"models"` // with tracks
}

// ModelCounts are the counts of the objects of a model.
type ModelCounts struct {
	Model string `json:"model"`
	rules.Counts
}

// StreamCounts returns the counts of the rules of a server stream.
func (c *Client) StreamCounts(ctx context.Context, name string) (s StreamCounts, err error) {
	if name == "" {
		return s, errNoName()
	}
	err = c.doJSON(ctx, http.MethodGet, c.url(nil, "v2", "streams", name, "counts"), nil, &s)
	return s, err
}

// ResetStreamCounts makes the counts of a server stream 0. Objects stay in their zones.
func (c *Client) ResetStreamCounts(ctx context.Context, name string) (s StreamCounts, err error) {
	if name == "" {
		return s, errNoName()
	}
	err = c.doJSON(ctx, http.MethodPost, c.url(nil, "v2", "streams", name, "counts", "reset"), nil, &s)
	return s, err
}

// streams sends a request about the server stream called name, or about all streams, and decodes the reply into to
// unless to is nil.
func (c *Client) streams(ctx context.Context, method, name string, body, to any) error {
	path := []string{"v2", "streams"}
	if name != "" {
		path = append(path, name)
	} else if method != http.MethodGet && method != http.MethodPost {
		return errNoName()
	}
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return stream.Errorf(stream.InvalidArgument, "", "the stream cannot be written as JSON: %w", err)
		}
	}
	return c.doJSON(ctx, method, c.url(nil, path...), text, to)
}

func errNoName() error {
	return stream.Errorf(stream.InvalidArgument, "name", "is missing: want the name of a stream")
}
