package load

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	"millrace/stream"
)

// The protocols of Config.Protocol.
const (
	WebSocketProtocol = "ws"
	RESTProtocol      = "rest"
	V1Protocol        = "v1" // millrace.v1, PerSession streams to a connection
)

// Config describes the load. Errors name a field by its flag. A Config can be decoded from JSON, with durations in
// nanoseconds.
type Config struct {
	URL      string            `json:"url,omitempty"`      // --url: of the server, e.g. http://127.0.0.1:8000
	Protocol string            `json:"protocol,omitempty"` // --protocol: ws (default), v1 or rest
	Model    string            `json:"model,omitempty"`    // --model
	Options  map[string]string `json:"options,omitempty"`  // --option key=value: query options, e.g. policy=latest
	Header   map[string]string `json:"header,omitempty"`   // --header name=value: of each request, e.g. Authorization
	Tensor   bool              `json:"tensor,omitempty"`   // --tensor: over REST, the payload is the bytes of one tensor
	Any      bool              `json:"any,omitempty"`      // with Tensor: the model declares no inputs; the options datatype and shape are UINT8 and the size of each payload unless they are set
	Token    string            `json:"-"`                  // --token-file: an API key of the server, sent as Authorization: Bearer; not in the report
	TLS      *tls.Config       `json:"-"`                  // how the server's certificate is verified; nil = by the system's certificate authorities
	Target   Target            `json:"-"`                  // instead of the fields above

	Streams int     `json:"streams,omitempty"` // --streams: streams that are open at once (1)
	Rate    float64 `json:"rate,omitempty"`    // --rate: frames per second of each stream; 0 = closed loop
	Poisson bool    `json:"poisson,omitempty"` // --poisson: open loop with random gaps instead of even ones
	Burst   int     `json:"burst,omitempty"`   // --burst: open loop, frames that are due at the same moment (1)
	Window  int     `json:"window,omitempty"`  // --window: closed loop, frames in flight on each stream (1)

	Frames   int           `json:"frames,omitempty"`   // --frames: frames of each stream; 0 = until Duration
	Duration time.Duration `json:"duration,omitempty"` // --duration: how long to send, at most (10s)
	RampUp   time.Duration `json:"ramp_up,omitempty"`  // --ramp-up: the time in which the streams are opened, one after the other
	Warmup   time.Duration `json:"warmup,omitempty"`   // --warmup: time after the ramp-up that rates and latencies leave out; its frames are counted
	Deadline time.Duration `json:"deadline,omitempty"` // --deadline: answers older than this do not count as goodput; 0 = all count
	Grace    time.Duration `json:"grace,omitempty"`    // --grace: how long to wait for the last endings, at most (5s)
	GiveUp   int           `json:"give_up,omitempty"`  // end early when the first frames, so many, all failed with one error; 0 = never

	Size int    `json:"size,omitempty"` // --size: size of a frame in bytes (1024), without --file and --dir
	File string `json:"file,omitempty"` // --file: each frame is this file, e.g. a picture
	Dir  string `json:"dir,omitempty"`  // --dir: the frames are the files of this folder in the order of their names, repeated

	Seed     uint64    `json:"seed,omitempty"` // --seed: seed of the random gaps
	Progress func(Row) `json:"-"`              // called after each second, from one goroutine
}

// DefaultSize is the size of a frame in bytes when the Config has none.
const DefaultSize = 1024

// Bounds of a Config.
const (
	MaxStreams  = 20000
	MaxRate     = 1e6
	MaxDuration = 24 * time.Hour
	maxSize     = 256 << 20
)

// withDefaults returns c with defaults for zero fields.
func (c Config) withDefaults() Config {
	or := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	or(&c.Streams, 1)
	or(&c.Burst, 1)
	or(&c.Window, 1)
	or(&c.Size, DefaultSize)
	if c.Protocol == "" {
		c.Protocol = WebSocketProtocol
	}
	if c.Duration == 0 {
		c.Duration = 10 * time.Second
	}
	if c.Grace == 0 {
		c.Grace = 5 * time.Second
	}
	return c
}

// Validate returns an error that names the first flag out of bounds. Zero fields count as their defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	within := func(flag string, v, low, high int) error {
		if v < low || v > high {
			return fmt.Errorf("%s: %d is not between %d and %d", flag, v, low, high)
		}
		return nil
	}
	for _, err := range []error{
		within("--streams", c.Streams, 1, MaxStreams),
		within("--burst", c.Burst, 1, 100000),
		within("--window", c.Window, 1, stream.MaxWindow),
		within("--frames", c.Frames, 0, math.MaxInt32),
		within("--size", c.Size, 1, maxSize),
		c.validateTimes(),
		c.validateTarget(),
	} {
		if err != nil {
			return err
		}
	}
	closed := c.Rate == 0
	switch {
	case c.Rate < 0 || c.Rate != c.Rate || c.Rate > MaxRate:
		return fmt.Errorf("--rate: %v is not between 0 and %v frames a second", c.Rate, float64(MaxRate))
	case closed && c.Poisson:
		return fmt.Errorf("--poisson: is for an open loop: give --rate as well")
	case closed && c.Burst > 1:
		return fmt.Errorf("--burst: is for an open loop: give --rate as well")
	case !closed && c.Window > 1:
		return fmt.Errorf("--window: is for a closed loop, and --rate asks for an open one (the window of a "+
			"stream's policy is --option window=%d)", c.Window)
	case !validHeader(c.Header):
		return fmt.Errorf("--header: a name has other characters than letters, digits and dashes, or a value has a " +
			"line break")
	case c.File != "" && c.Dir != "":
		return fmt.Errorf("--dir: give either --file or --dir")
	}
	return nil
}

func validHeader(header map[string]string) bool {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}
	for name, value := range header {
		if name == "" || strings.ContainsFunc(name, odd) || strings.ContainsAny(value, "\r\n\x00") {
			return false
		}
	}
	return true
}

func (c *Config) validateTimes() error {
	for _, t := range []struct {
		flag      string
		d         time.Duration
		low, high time.Duration
	}{
		{"--duration", c.Duration, time.Millisecond, MaxDuration},
		{"--ramp-up", c.RampUp, 0, MaxDuration},
		{"--warmup", c.Warmup, 0, MaxDuration},
		{"--deadline", c.Deadline, 0, time.Hour},
		{"--grace", c.Grace, 0, time.Hour},
	} {
		if t.d < t.low || t.d > t.high {
			return fmt.Errorf("%s: %v is not between %v and %v", t.flag, t.d, t.low, t.high)
		}
	}
	if c.RampUp+c.Warmup >= c.Duration {
		return fmt.Errorf("--duration: %v is not longer than --ramp-up and --warmup together, which are %v",
			c.Duration, c.RampUp+c.Warmup)
	}
	return nil
}

func (c *Config) validateTarget() error {
	if c.Target != nil {
		return nil
	}
	u, err := url.Parse(c.URL)
	switch {
	case c.URL == "":
		return fmt.Errorf("--url: is missing: want the server's address, e.g. http://127.0.0.1:8000")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "ws" &&
		u.Scheme != "wss":
		return fmt.Errorf("--url: %q is not an address of the form http://host:port", c.URL)
	case c.Model == "":
		return fmt.Errorf("--model: is missing")
	case c.Protocol != WebSocketProtocol && c.Protocol != RESTProtocol && c.Protocol != V1Protocol:
		return fmt.Errorf("--protocol: %q is not one: want %s, %s or %s", c.Protocol, WebSocketProtocol, V1Protocol,
			RESTProtocol)
	case c.Tensor && c.Protocol != RESTProtocol:
		return fmt.Errorf("--tensor: is for --protocol rest: frames of plain WebSocket are pictures or bytes")
	}
	return nil
}

// anyTensor returns the URL of requests to a model that takes any tensor, and the size of an element if the URL has
// no shape.
func (c *Config) anyTensor() (url string, element int) {
	more := map[string]string{"datatype": string(stream.Uint8)}
	of := stream.Datatype(cmp.Or(c.Options["datatype"], more["datatype"]))
	if c.Options["shape"] == "" {
		element = of.Size() // 0 for BYTES: the server asks for a shape
	}
	return c.address("http", "infer", more), element
}

// address returns the URL of path on the server. The query has the options, and further options from more.
func (c *Config) address(scheme, path string, more map[string]string) string {
	u, err := url.Parse(c.URL)
	if err != nil { // checked by Validate
		return c.URL
	}
	if u.Scheme == "https" || u.Scheme == "wss" {
		scheme += "s"
	}
	q := url.Values{}
	for _, m := range []map[string]string{more, c.Options} {
		for k, v := range m {
			q.Set(k, v)
		}
	}
	u.Scheme, u.RawQuery = scheme, q.Encode()
	return u.JoinPath("v2", "models", url.PathEscape(c.Model), path).String()
}
