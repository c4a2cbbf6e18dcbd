package wire

import "fmt"

// Policy is what a stream wants of freshness and flow. A field that is 0 or ""
// is the model's default.
type Policy struct {
	Mode       string  `json:"mode,omitempty" want:"mode"`      // latest or every
	MaxAgeMS   int     `json:"max_age_ms,omitempty" want:"ms"`  // up to MaxMS
	DeadlineMS int     `json:"deadline_ms,omitempty" want:"ms"` // up to MaxMS
	MaxFPS     float64 `json:"max_fps,omitempty" want:"rate"`   // 0.001 to 1000000
	Window     int     `json:"window,omitempty" want:"window"`  // frames, up to MaxWindow
}

// PolicyChange replaces the fields of a Policy that it has: with 0 by the model's
// default. Those that are nil or "" stay as they are.
type PolicyChange struct {
	Mode       string   `json:"mode,omitempty" want:"mode"`
	MaxAgeMS   *int     `json:"max_age_ms,omitempty" want:"ms"`
	DeadlineMS *int     `json:"deadline_ms,omitempty" want:"ms"`
	MaxFPS     *float64 `json:"max_fps,omitempty" want:"rate"`
	Window     *int     `json:"window,omitempty" want:"window"`
}

// Open asks for a stream to a model.
type Open struct {
	SID      uint32 `json:"sid" want:"must"`               // the client's choice, unused on this connection
	Model    string `json:"model,omitempty" want:"name"`   // may be left out where the URL names it
	Version  string `json:"version,omitempty" want:"name"` // of the model; "" = any
	Codec    string `json:"codec,omitempty" want:"codec"`  // a Codec's name, or auto
	Width    int    `json:"width,omitempty" want:"side"`   // pixels; both or none
	Height   int    `json:"height,omitempty" want:"side"`
	Policy   Policy `json:"policy,omitzero"`
	Outputs  string `json:"outputs,omitempty" want:"outputs"` // json, binary or none
	Stateful bool   `json:"stateful,omitempty"`               // only a model that keeps a state for each stream will do
	Params   Params `json:"params,omitempty"`                 // for frames that bring none
}

// Type implements Message.
func (*Open) Type() string { return "open" }

func (m *Open) check() error {
	if (m.Width == 0) != (m.Height == 0) {
		return invalid(ErrValue, "width", fmt.Sprintf("and height are %d and %d: want both or none", m.Width, m.Height))
	}
	return nil
}

// Update changes a stream: what is set replaces what is in force.
type Update struct {
	SID     uint32       `json:"sid" want:"must"`
	Policy  PolicyChange `json:"policy,omitzero"`
	Outputs string       `json:"outputs,omitempty" want:"outputs"`
	Params  Params       `json:"params,omitzero"` // all of them; nil = as they are
}

// Type implements Message.
func (*Update) Type() string { return "update" }

// Pause has the frames of a stream wait.
type Pause struct {
	SID uint32 `json:"sid" want:"must"`
}

// Resume ends a pause. (A session is resumed with Attach.)
type Resume struct {
	SID uint32 `json:"sid" want:"must"`
}

// Flush drops the frames of a stream that wait.
type Flush struct {
	SID uint32 `json:"sid" want:"must"`
}

// Close ends a stream; Closed answers it.
type Close struct {
	SID uint32 `json:"sid" want:"must"`
}

// Type implements Message.
func (*Pause) Type() string { return "pause" }

// Type implements Message.
func (*Resume) Type() string { return "resume" }

// Type implements Message.
func (*Flush) Type() string { return "flush" }

// Type implements Message.
func (*Close) Type() string { return "close" }

// Ping asks for a Pong.
type Ping struct {
	T int64 `json:"t" want:"must"` // the client's clock, in what it likes; returned as it is
}

// Type implements Message.
func (*Ping) Type() string { return "ping" }

// Attach resumes a session. It is the first message of a new connection;
// Attached answers it.
type Attach struct {
	Token   string         `json:"token" want:"must,token"` // the latest resume_token
	Streams []AttachStream `json:"streams,omitempty"`
}

// AttachStream is a stream of the session to be resumed.
type AttachStream struct {
	SID     uint32  `json:"sid" want:"must"`
	LastSeq *uint64 `json:"last_seq,omitempty"` // of the last ending that arrived; nil = none did
}

// Type implements Message.
func (*Attach) Type() string { return "attach" }

func (m *Attach) check() error {
	seen := map[uint32]bool{}
	for i, s := range m.Streams {
		if seen[s.SID] {
			return invalid(ErrTwice, fmt.Sprintf("streams[%d].sid", i), fmt.Sprintf("%d comes twice", s.SID))
		}
		seen[s.SID] = true
	}
	return nil
}
