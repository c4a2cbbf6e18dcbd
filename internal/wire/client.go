package wire

import "fmt"

// Policy is what a stream wants of freshness and flow. A field that is 0 or ""
// is the model's default.
type Policy struct {
	Mode       string  `json:"mode,omitempty"`        // latest or every
	MaxAgeMS   int     `json:"max_age_ms,omitempty"`  // up to MaxMS
	DeadlineMS int     `json:"deadline_ms,omitempty"` // up to MaxMS
	MaxFPS     float64 `json:"max_fps,omitempty"`     // 0.001 to 1000000
	Window     int     `json:"window,omitempty"`      // frames, up to MaxWindow
}

func (p *Policy) read(v value) error {
	return v.object(
		may("mode", oneOf(&p.Mode, "latest", "every")),
		may("max_age_ms", unsigned(&p.MaxAgeMS, MaxMS)),
		may("deadline_ms", unsigned(&p.DeadlineMS, MaxMS)),
		may("max_fps", fraction(&p.MaxFPS, minFPS, maxFPS)),
		may("window", unsigned(&p.Window, MaxWindow)),
	)
}

// PolicyChange replaces the fields of a Policy that it has: with 0 by the model's
// default. Those that are nil or "" stay as they are.
type PolicyChange struct {
	Mode       string   `json:"mode,omitempty"`
	MaxAgeMS   *int     `json:"max_age_ms,omitempty"`
	DeadlineMS *int     `json:"deadline_ms,omitempty"`
	MaxFPS     *float64 `json:"max_fps,omitempty"`
	Window     *int     `json:"window,omitempty"`
}

func (p *PolicyChange) read(v value) error {
	number := func(most uint64) func(*int) func(value) error {
		return func(n *int) func(value) error { return unsigned(n, most) }
	}
	return v.object(
		may("mode", oneOf(&p.Mode, "latest", "every")),
		may("max_age_ms", optional(&p.MaxAgeMS, number(MaxMS))),
		may("deadline_ms", optional(&p.DeadlineMS, number(MaxMS))),
		may("max_fps", optional(&p.MaxFPS, func(f *float64) func(value) error { return fraction(f, minFPS, maxFPS) })),
		may("window", optional(&p.Window, number(MaxWindow))),
	)
}

func outputsInto(p *string) func(value) error { return oneOf(p, "json", "binary", "none") }

// Open asks for a stream to a model.
type Open struct {
	SID      uint32 `json:"sid"`               // the client's choice, unused on this connection
	Model    string `json:"model,omitempty"`   // may be left out where the URL names it
	Version  string `json:"version,omitempty"` // of the model; "" = any
	Codec    string `json:"codec,omitempty"`   // a Codec's name, or auto
	Width    int    `json:"width,omitempty"`   // pixels; both or none
	Height   int    `json:"height,omitempty"`
	Policy   Policy `json:"policy,omitzero"`
	Outputs  string `json:"outputs,omitempty"`  // json, binary or none
	Stateful bool   `json:"stateful,omitempty"` // only a model that keeps a state for each stream will do
	Params   Params `json:"params,omitempty"`   // for frames that bring none
}

// Type implements Message.
func (*Open) Type() string { return "open" }

var openCodecs = append([]string{"auto"}, codecNames[:]...)

func (m *Open) read(v value) error {
	err := v.object(
		must("sid", sidInto(&m.SID)),
		may("model", words(&m.Model, 0, MaxName)),
		may("version", words(&m.Version, 0, MaxName)),
		may("codec", oneOf(&m.Codec, openCodecs...)),
		may("width", unsigned(&m.Width, MaxSide)),
		may("height", unsigned(&m.Height, MaxSide)),
		may("policy", m.Policy.read),
		may("outputs", outputsInto(&m.Outputs)),
		may("stateful", boolean(&m.Stateful)),
		may("params", m.Params.read),
	)
	if err == nil && (m.Width == 0) != (m.Height == 0) {
		return invalid(ErrValue, "width", fmt.Sprintf("and height are %d and %d: want both or none", m.Width, m.Height))
	}
	return err
}

// Update changes a stream: what is set replaces what is in force.
type Update struct {
	SID     uint32       `json:"sid"`
	Policy  PolicyChange `json:"policy,omitzero"`
	Outputs string       `json:"outputs,omitempty"`
	Params  Params       `json:"params,omitzero"` // all of them; nil = as they are
}

// Type implements Message.
func (*Update) Type() string { return "update" }

func (m *Update) read(v value) error {
	return v.object(
		must("sid", sidInto(&m.SID)),
		may("policy", m.Policy.read),
		may("outputs", outputsInto(&m.Outputs)),
		may("params", m.Params.read),
	)
}

// Pause has the frames of a stream wait.
type Pause struct {
	SID uint32 `json:"sid"`
}

// Resume ends a pause. (A session is resumed with Attach.)
type Resume struct {
	SID uint32 `json:"sid"`
}

// Flush drops the frames of a stream that wait.
type Flush struct {
	SID uint32 `json:"sid"`
}

// Close ends a stream; Closed answers it.
type Close struct {
	SID uint32 `json:"sid"`
}

// Type implements Message.
func (*Pause) Type() string { return "pause" }

// Type implements Message.
func (*Resume) Type() string { return "resume" }

// Type implements Message.
func (*Flush) Type() string { return "flush" }

// Type implements Message.
func (*Close) Type() string { return "close" }

func (m *Pause) read(v value) error  { return v.object(must("sid", sidInto(&m.SID))) }
func (m *Resume) read(v value) error { return v.object(must("sid", sidInto(&m.SID))) }
func (m *Flush) read(v value) error  { return v.object(must("sid", sidInto(&m.SID))) }
func (m *Close) read(v value) error  { return v.object(must("sid", sidInto(&m.SID))) }

// Ping asks for a Pong.
type Ping struct {
	T int64 `json:"t"` // the client's clock, in what it likes; returned as it is
}

// Type implements Message.
func (*Ping) Type() string { return "ping" }

func (m *Ping) read(v value) error { return v.object(must("t", signed(&m.T))) }

// Attach resumes a session. It is the first message of a new connection;
// Attached answers it.
type Attach struct {
	Token   string         `json:"token"` // the latest resume_token
	Streams []AttachStream `json:"streams,omitempty"`
}

// AttachStream is a stream of the session to be resumed.
type AttachStream struct {
	SID     uint32  `json:"sid"`
	LastSeq *uint64 `json:"last_seq,omitempty"` // of the last ending that arrived; nil = none did
}

// Type implements Message.
func (*Attach) Type() string { return "attach" }

func (m *Attach) read(v value) error {
	seen := map[uint32]bool{}
	one := func(v value) error {
		var s AttachStream
		if err := v.object(must("sid", sidInto(&s.SID)), may("last_seq", optional(&s.LastSeq, seqInto))); err != nil {
			return err
		}
		if seen[s.SID] {
			return invalid(ErrTwice, "sid", fmt.Sprintf("%d comes twice", s.SID))
		}
		seen[s.SID] = true
		m.Streams = append(m.Streams, s)
		return nil
	}
	return v.object(
		must("token", words(&m.Token, 1, MaxToken)),
		may("streams", func(v value) error { return v.each(one) }),
	)
}
