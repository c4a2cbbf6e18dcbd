package client

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"time"

	"millrace/stream"
)

// StreamConfig is what a stream of the server's own is made of: a source that
// the server reads itself, the model that sees its frames, and where the results
// go beside those who watch. 0 and "" stand for the server's or the model's own.
type StreamConfig struct {
	Name       string      `json:"name"`
	Source     string      `json:"source"` // an http, https, rtsp or rtsps address
	Model      string      `json:"model"`
	Version    string      `json:"version,omitempty"`
	Policy     stream.Mode `json:"policy,omitempty"`
	MaxAgeMS   int         `json:"max_age_ms,omitempty"`
	DeadlineMS int         `json:"deadline_ms,omitempty"`
	MaxFPS     float64     `json:"max_fps,omitempty"`  // frames that come sooner are dropped
	Window     int         `json:"window,omitempty"`   // frames on their way at once
	Priority   string      `json:"priority,omitempty"` // normal, high or low
	FPS        float64     `json:"fps,omitempty"`      // frames taken from the source a second, at most
	Loop       bool        `json:"loop,omitempty"`     // a video with an end starts over
	Paused     bool        `json:"paused,omitempty"`

	// Settings are further ones by their names in the configuration, such as width and
	// rtsp_transport: those of the source's kind.
	Settings map[string]any `json:"-"`
	// Sinks are where results go, by the names of their settings: webhook, and
	// webhook_secret to sign what is posted.
	Sinks map[string]any `json:"sinks,omitempty"`
}

// MarshalJSON writes all settings into one object.
func (c StreamConfig) MarshalJSON() ([]byte, error) {
	type plain StreamConfig
	own, err := json.Marshal(plain(c))
	if err != nil || len(c.Settings) == 0 {
		return own, err
	}
	var all map[string]any
	if err := json.Unmarshal(own, &all); err != nil {
		return nil, err
	}
	maps.Copy(all, c.Settings)
	return json.Marshal(all)
}

// StreamChange is what can be changed of a stream while it runs. What is nil
// stays.
type StreamChange struct {
	Paused     *bool    `json:"paused,omitempty"`
	MaxAgeMS   *int     `json:"max_age_ms,omitempty"`
	DeadlineMS *int     `json:"deadline_ms,omitempty"`
	MaxFPS     *float64 `json:"max_fps,omitempty"`
	Window     *int     `json:"window,omitempty"`
	Priority   *string  `json:"priority,omitempty"`
}

// ServerStream tells what a stream of the server's own does.
type ServerStream struct {
	Name      string                   `json:"name"`
	Source    string                   `json:"source"`                   // without passwords
	Transport string                   `json:"rtsp_transport,omitempty"` // tcp or udp, of an rtsp or rtsps source
	Model     string                   `json:"model"`
	Version   string                   `json:"version,omitempty"`
	Origin    string                   `json:"origin"`          // config or request
	State     string                   `json:"state"`           // connecting, running, waiting, ended or failed
	Since     time.Time                `json:"since"`           // of the state
	Retry     *time.Time               `json:"retry,omitempty"` // of a waiting one
	Error     *StreamFailure           `json:"error,omitempty"` // the last one
	Paused    bool                     `json:"paused"`
	Policy    StreamPolicy             `json:"policy"`
	Width     int                      `json:"width,omitempty"` // of the frames, in pixels
	Height    int                      `json:"height,omitempty"`
	FPS       float64                  `json:"fps,omitempty"` // of the source, as it says
	Restarts  uint64                   `json:"restarts"`      // of the source
	Frames    uint64                   `json:"frames"`        // read from it
	Results   uint64                   `json:"results"`       // of them
	Errors    uint64                   `json:"errors"`
	Drops     map[stream.Reason]uint64 `json:"drops"`
	Lost      StreamLost               `json:"lost"`
	Last      *time.Time               `json:"last,omitempty"` // the newest result
	Watchers  int                      `json:"watchers"`       // of results and video
	Sinks     map[string]StreamSink    `json:"sinks"`          // by their names: file, webhook and so on
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

// StreamLost counts what was lost, and where.
type StreamLost struct {
	Frames  uint64 `json:"frames"`  // for want of memory
	Results uint64 `json:"results"` // no sink was given
	Lines   uint64 `json:"lines"`   // watchers were too slow for
}

// StreamSink counts the results that went to one sink.
type StreamSink struct {
	Sent    uint64 `json:"sent"`
	Retries uint64 `json:"retries"` // attempts after the first
	Lost    uint64 `json:"lost"`
	Error   string `json:"error,omitempty"` // the last one
}

// ServerStreams lists the streams of the server's own, by name.
func (c *Client) ServerStreams(ctx context.Context) ([]ServerStream, error) {
	var list struct {
		Streams []ServerStream `json:"streams"`
	}
	err := c.streams(ctx, http.MethodGet, "", nil, &list)
	return list.Streams, err
}

// ServerStream asks for one.
func (c *Client) ServerStream(ctx context.Context, name string) (s ServerStream, err error) {
	if name == "" {
		return s, errNoName()
	}
	err = c.streams(ctx, http.MethodGet, name, nil, &s)
	return s, err
}

// AddServerStream has the server start one.
func (c *Client) AddServerStream(ctx context.Context, cfg StreamConfig) (s ServerStream, err error) {
	err = c.streams(ctx, http.MethodPost, "", cfg, &s)
	return s, err
}

// ChangeServerStream changes one while it runs: all of the change, or nothing.
func (c *Client) ChangeServerStream(ctx context.Context, name string, change StreamChange) (s ServerStream, err error) {
	err = c.streams(ctx, http.MethodPatch, name, change, &s)
	return s, err
}

// RemoveServerStream ends one. It returns when nothing of it is left.
func (c *Client) RemoveServerStream(ctx context.Context, name string) error {
	return c.streams(ctx, http.MethodDelete, name, nil, nil)
}

// streams asks about the stream called name, or about all, and reads the reply
// into to unless it is nil.
func (c *Client) streams(ctx context.Context, method, name string, ask, to any) error {
	path := []string{"v2", "streams"}
	if name != "" {
		path = append(path, name)
	} else if method != http.MethodGet && method != http.MethodPost {
		return errNoName()
	}
	var body []byte
	if ask != nil {
		var err error
		if body, err = json.Marshal(ask); err != nil {
			return stream.Errorf(stream.InvalidArgument, "", "the stream cannot be written as JSON: %w", err)
		}
	}
	return c.doJSON(ctx, method, c.url(nil, path...), body, to)
}

func errNoName() error {
	return stream.Errorf(stream.InvalidArgument, "name", "is missing: want the name of a stream")
}
