package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"millrace/stream"
)

// StreamConfig is what a stream of the server's own is made of: a source that
// the server reads itself, the model that sees its frames, and where the results
// go beside those who watch. 0 and "" stand for the server's or the model's own.
type StreamConfig struct {
	Name       string      `json:"name"`
	Source     string      `json:"source"`                   // an http, https, rtsp or rtsps address
	Transport  string      `json:"rtsp_transport,omitempty"` // of an rtsp source: tcp or udp; "" = tcp
	Model      string      `json:"model"`
	Version    string      `json:"version,omitempty"`
	Policy     stream.Mode `json:"policy,omitempty"`
	MaxAgeMS   int         `json:"max_age_ms,omitempty"`
	DeadlineMS int         `json:"deadline_ms,omitempty"`
	MaxFPS     float64     `json:"max_fps,omitempty"`  // frames that come sooner are dropped
	Window     int         `json:"window,omitempty"`   // frames on their way at once
	Priority   string      `json:"priority,omitempty"` // normal, high or low
	FPS        float64     `json:"fps,omitempty"`      // frames taken from the source a second, at most
	Width      int         `json:"width,omitempty"`    // pixels that frames are scaled to
	Loop       bool        `json:"loop,omitempty"`     // a video with an end starts over
	Paused     bool        `json:"paused,omitempty"`
	Sinks      StreamSinks `json:"sinks"`
}

// StreamSinks are where results go. A file can be named by the server's
// configuration only.
type StreamSinks struct {
	Webhook       string `json:"webhook,omitempty"`        // an http or https address
	WebhookSecret string `json:"webhook_secret,omitempty"` // signs what is posted
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
	Webhook   *StreamWebhook           `json:"webhook,omitempty"`
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
	File    uint64 `json:"file"`    // could not be written
}

// StreamWebhook counts the results that were posted.
type StreamWebhook struct {
	Sent    uint64 `json:"sent"`
	Retries uint64 `json:"retries"`
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
	reply, _, err := c.do(ctx, method, c.url(nil, path...), jsonHeader, body)
	if err != nil || to == nil {
		return err
	}
	return notOurs(json.Unmarshal(reply, to))
}

func errNoName() error {
	return stream.Errorf(stream.InvalidArgument, "name", "is missing: want the name of a stream")
}
