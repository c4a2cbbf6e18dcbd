package wire

import "math"

// Ready is the server's first message: a new session.
type Ready struct {
	Session     string `json:"session"`
	ResumeToken string `json:"resume_token,omitempty"` // for Attach; "" = cannot be resumed
	ResumeMS    int    `json:"resume_ms,omitempty"`    // how long the session outlives its connection
	Limits      Limits `json:"limits,omitzero"`
}

// Limits are what the server takes; 0 = not told.
type Limits struct {
	MaxMessage int `json:"max_message,omitempty"` // bytes of a message
	MaxText    int `json:"max_text,omitempty"`    // bytes of a text message
	MaxStreams int `json:"max_streams,omitempty"` // of one session
	MaxWindow  int `json:"max_window,omitempty"`  // frames of one stream
}

// Opened answers Open.
type Opened struct {
	SID         uint32 `json:"sid"`
	CreditLimit uint64 `json:"credit_limit"`    // see Credit
	Policy      Policy `json:"policy,omitzero"` // as it holds, the model's defaults filled in
}

// Credit says how many frames of a stream the client may have sent in all. That
// number never falls.
type Credit struct {
	SID         uint32 `json:"sid"`
	CreditLimit uint64 `json:"credit_limit"`
	Ack         uint64 `json:"ack,omitempty"` // frames that have ended so far
}

// Advise asks the client to send otherwise. 0 = as it is.
type Advise struct {
	SID      uint32  `json:"sid"`
	FPS      float64 `json:"fps,omitempty"`
	Width    int     `json:"width,omitempty"` // pixels
	Height   int     `json:"height,omitempty"`
	Quality  int     `json:"quality,omitempty"` // of JPEG and WebP, 1 to 100
	KeyFrame bool    `json:"keyframe,omitempty"`
}

// Counts are the frames of a stream, and by how they ended as the client was told:
// Received = Results + Drops + Errors and those on their way, which are none in
// Closed.
type Counts struct {
	Received uint64 `json:"received,omitempty"` // Accepted, and those that were refused: each ended as an error or a drop
	Accepted uint64 `json:"accepted"`
	Results  uint64 `json:"results"`
	Drops    uint64 `json:"drops"`
	Errors   uint64 `json:"errors"`
}

// Stats tells how a stream fares.
type Stats struct {
	SID     uint32  `json:"sid"`
	Counts  Counts  `json:"counts"`
	Waiting int     `json:"waiting,omitempty"` // frames not yet bound to a batch
	FPS     float64 `json:"fps,omitempty"`     // results a second, of late
	AgeUS   int64   `json:"age_us,omitempty"`  // from receipt to result, of late
}

// ErrorMessage tells of an error: of a frame (SID and Seq), of a stream (SID) or
// of the session.
type ErrorMessage struct {
	Code         string  `json:"code"` // stream.Code, or unsupported_version
	Message      string  `json:"message"`
	Retryable    bool    `json:"retryable,omitempty"`
	RetryAfterMS int     `json:"retry_after_ms,omitempty"` // 0 = not known
	SID          *uint32 `json:"sid,omitempty"`
	Seq          *uint64 `json:"seq,omitempty"`
	Ack          uint64  `json:"ack,omitempty"` // with Seq: as in Result
	Limit        uint64  `json:"credit_limit,omitempty"`
	Fatal        bool    `json:"fatal,omitempty"` // the connection is closed next
}

// GoAway says that the server will close the connection.
type GoAway struct {
	TimeLeftMS int `json:"time_left_ms"`
}

// Pong answers Ping.
type Pong struct {
	T       int64 `json:"t"`        // as Ping had it
	ServerT int64 `json:"server_t"` // microseconds since 1970 of the server's clock
}

// Closed is the last message of a stream.
type Closed struct {
	SID    uint32 `json:"sid"`
	Reason string `json:"reason"` // one of CloseReasons
	Totals Counts `json:"totals"`
}

// Attached answers Attach.
type Attached struct {
	Session     string           `json:"session"`
	ResumeToken string           `json:"resume_token"` // in place of the one that was used
	ResumeMS    int              `json:"resume_ms,omitempty"`
	Streams     []AttachedStream `json:"streams,omitempty"` // those that still live
}

// AttachedStream is a stream that was resumed.
type AttachedStream struct {
	SID           uint32  `json:"sid"`
	ReceivedCount uint64  `json:"received_count"`         // frames that arrived, as credits count them
	ReceivedSeq   *uint64 `json:"received_seq,omitempty"` // of the latest; nil = there is none
	CreditLimit   uint64  `json:"credit_limit"`
}

// Type implements Message.
func (*Ready) Type() string { return "ready" }

// Type implements Message.
func (*Opened) Type() string { return "opened" }

// Type implements Message.
func (*Credit) Type() string { return "credit" }

// Type implements Message.
func (*Advise) Type() string { return "advise" }

// Type implements Message.
func (*Stats) Type() string { return "stats" }

// Type implements Message.
func (*ErrorMessage) Type() string { return "error" }

// Type implements Message.
func (*GoAway) Type() string { return "goaway" }

// Type implements Message.
func (*Pong) Type() string { return "pong" }

// Type implements Message.
func (*Closed) Type() string { return "closed" }

// Type implements Message.
func (*Attached) Type() string { return "attached" }

func (m *Ready) read(v value) error {
	return v.object(
		must("session", words(&m.Session, 1, MaxToken)),
		may("resume_token", words(&m.ResumeToken, 0, MaxToken)),
		may("resume_ms", unsigned(&m.ResumeMS, math.MaxInt32)),
		may("limits", m.Limits.read),
	)
}

func (l *Limits) read(v value) error {
	return v.object(
		may("max_message", unsigned(&l.MaxMessage, math.MaxInt)),
		may("max_text", unsigned(&l.MaxText, math.MaxInt)),
		may("max_streams", unsigned(&l.MaxStreams, math.MaxInt)),
		may("max_window", unsigned(&l.MaxWindow, math.MaxInt)),
	)
}

func (m *Opened) read(v value) error {
	return v.object(must("sid", sidInto(&m.SID)), must("credit_limit", seqInto(&m.CreditLimit)), may("policy", m.Policy.read))
}

func (m *Credit) read(v value) error {
	return v.object(must("sid", sidInto(&m.SID)), must("credit_limit", seqInto(&m.CreditLimit)), may("ack", seqInto(&m.Ack)))
}

func (m *Advise) read(v value) error {
	return v.object(
		must("sid", sidInto(&m.SID)),
		may("fps", fraction(&m.FPS, minFPS, maxFPS)),
		may("width", unsigned(&m.Width, MaxSide)),
		may("height", unsigned(&m.Height, MaxSide)),
		may("quality", unsigned(&m.Quality, 100)),
		may("keyframe", boolean(&m.KeyFrame)),
	)
}

func (c *Counts) read(v value) error {
	return v.object(
		may("received", seqInto(&c.Received)),
		must("accepted", seqInto(&c.Accepted)),
		must("results", seqInto(&c.Results)),
		must("drops", seqInto(&c.Drops)),
		must("errors", seqInto(&c.Errors)),
	)
}

func (m *Stats) read(v value) error {
	return v.object(
		must("sid", sidInto(&m.SID)),
		must("counts", m.Counts.read),
		may("waiting", unsigned(&m.Waiting, math.MaxInt32)),
		may("fps", fraction(&m.FPS, 0, math.MaxFloat64)),
		may("age_us", signed(&m.AgeUS)),
	)
}

func (m *ErrorMessage) read(v value) error {
	return v.object(
		must("code", words(&m.Code, 1, MaxName)),
		must("message", words(&m.Message, 0, MaxServerText)),
		may("retryable", boolean(&m.Retryable)),
		may("retry_after_ms", unsigned(&m.RetryAfterMS, math.MaxInt32)),
		may("sid", optional(&m.SID, sidInto)),
		may("seq", optional(&m.Seq, seqInto)),
		may("ack", seqInto(&m.Ack)),
		may("credit_limit", seqInto(&m.Limit)),
		may("fatal", boolean(&m.Fatal)),
	)
}

func (m *GoAway) read(v value) error {
	return v.object(must("time_left_ms", unsigned(&m.TimeLeftMS, math.MaxInt32)))
}

func (m *Pong) read(v value) error {
	return v.object(must("t", signed(&m.T)), must("server_t", signed(&m.ServerT)))
}

func (m *Closed) read(v value) error {
	return v.object(
		must("sid", sidInto(&m.SID)),
		must("reason", words(&m.Reason, 1, MaxName)),
		must("totals", m.Totals.read),
	)
}

func (m *Attached) read(v value) error {
	one := func(v value) error {
		var s AttachedStream
		err := v.object(
			must("sid", sidInto(&s.SID)),
			must("received_count", seqInto(&s.ReceivedCount)),
			may("received_seq", optional(&s.ReceivedSeq, seqInto)),
			must("credit_limit", seqInto(&s.CreditLimit)),
		)
		m.Streams = append(m.Streams, s)
		return err
	}
	return v.object(
		must("session", words(&m.Session, 1, MaxToken)),
		must("resume_token", words(&m.ResumeToken, 1, MaxToken)),
		may("resume_ms", unsigned(&m.ResumeMS, math.MaxInt32)),
		may("streams", func(v value) error { return v.each(one) }),
	)
}
