package wire

import (
	"encoding/json"
	"fmt"
)

// Policy is the policy of a stream. A field that is 0 or "" has the model's default.
type Policy struct {
	Mode       string  `json:"mode,omitempty" want:"mode"`      // latest or every
	MaxAgeMS   int     `json:"max_age_ms,omitempty" want:"ms"`  // up to MaxMS
	DeadlineMS int     `json:"deadline_ms,omitempty" want:"ms"` // up to MaxMS
	MaxFPS     float64 `json:"max_fps,omitempty" want:"rate"`   // 0.001 to 1000000
	Window     int     `json:"window,omitempty" want:"window"`  // frames, up to MaxWindow
}

// PolicyChange changes fields of a Policy. 0 restores the model's default; nil and "" change
// nothing.
type PolicyChange struct {
	Mode       string   `json:"mode,omitempty" want:"mode"`
	MaxAgeMS   *int     `json:"max_age_ms,omitempty" want:"ms"`
	DeadlineMS *int     `json:"deadline_ms,omitempty" want:"ms"`
	MaxFPS     *float64 `json:"max_fps,omitempty" want:"rate"`
	Window     *int     `json:"window,omitempty" want:"window"`
}

// Open opens a stream to a model.
type Open struct {
	SID      uint32 `json:"sid" want:"must"`               // chosen by the client, unused in this session
	Model    string `json:"model,omitempty" want:"name"`   // may be left out if in the URL
	Version  string `json:"version,omitempty" want:"name"` // of the model; "" = any
	Codec    string `json:"codec,omitempty" want:"codec"`  // the name of a Codec, or auto
	Width    int    `json:"width,omitempty" want:"side"`   // pixels; both or none
	Height   int    `json:"height,omitempty" want:"side"`
	Policy   Policy `json:"policy,omitzero"`
	Outputs  string `json:"outputs,omitempty" want:"outputs"` // json, binary or none
	Stateful bool   `json:"stateful,omitempty"`               // accept only a model that keeps state for each stream
	Params   Params `json:"params,omitempty"`                 // for frames without parameters
	Trace    bool   `json:"trace,omitempty"`                  // results and errors of frames name the frame's trace

	Rules json.RawMessage `json:"rules,omitempty" want:"object"` // over the objects, in the form of rules.Parse
}

// Type implements Message.
func (*Open) Type() string { return "open" }

func (m *Open) check() error {
	if (m.Width == 0) != (m.Height == 0) {
		return invalid(ErrValue, "width", fmt.Sprintf("and height are %d and %d: want both or none", m.Width, m.Height))
	}
	return nil
}

// Update changes a stream: fields that are set replace the present values.
type Update struct {
	SID     uint32       `json:"sid" want:"must"`
	Policy  PolicyChange `json:"policy,omitzero"`
	Outputs string       `json:"outputs,omitempty" want:"outputs"`
	Params  Params       `json:"params,omitzero"` // replaces all parameters; nil = no change
}

// Type implements Message.
func (*Update) Type() string { return "update" }

// Pause makes the frames of a stream wait.
type Pause struct {
	SID uint32 `json:"sid" want:"must"`
}

// Resume ends a pause. (A session is resumed with Attach.)
type Resume struct {
	SID uint32 `json:"sid" want:"must"`
}

// Flush drops the waiting frames of a stream.
type Flush struct {
	SID uint32 `json:"sid" want:"must"`
}

// Close ends a stream; the reply is Closed.
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
	T int64 `json:"t" want:"must"` // by the client's clock, in any unit; repeated by Pong
}

// Type implements Message.
func (*Ping) Type() string { return "ping" }

// Attach resumes a session. Attach is the first message of a new connection; the reply is Attached.
type Attach struct {
	Token   string         `json:"token" want:"must,token"` // the latest resume_token
	Streams []AttachStream `json:"streams,omitempty"`
}

// AttachStream is a stream of the session to be resumed.
type AttachStream struct {
	SID     uint32  `json:"sid" want:"must"`
	LastSeq *uint64 `json:"last_seq,omitempty"` // the highest seq up to which all endings have arrived; nil = none
}

// Type implements Message.
func (*Attach) Type() string { return "attach" }

func (m *Attach) check() error {
	seen := map[uint32]bool{}
	for i, s := range m.Streams {
		if seen[s.SID] {
			return invalid(ErrTwice, fmt.Sprintf("streams[%d].sid", i), fmt.Sprintf("%d is given twice", s.SID))
		}
		seen[s.SID] = true
	}
	return nil
}
