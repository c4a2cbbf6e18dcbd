package wire

// Ready is the server's first message: a new session.
type Ready struct {
	Session     string `json:"session" want:"must,token"`
	ResumeToken string `json:"resume_token,omitempty" want:"no token"` // for Attach; "" = cannot be resumed
	ResumeMS    int    `json:"resume_ms,omitempty"`                    // how long the server keeps the session without a connection
	Limits      Limits `json:"limits,omitzero"`
}

// Limits are the limits of the server; 0 = not given.
type Limits struct {
	MaxMessage int `json:"max_message,omitempty"` // bytes of a message
	MaxText    int `json:"max_text,omitempty"`    // bytes of a text message
	MaxStreams int `json:"max_streams,omitempty"` // of a session
	MaxWindow  int `json:"max_window,omitempty"`  // frames of a stream
}

// Opened is the reply to Open.
type Opened struct {
	SID         uint32 `json:"sid" want:"must"`
	CreditLimit uint64 `json:"credit_limit" want:"must"` // see Credit
	Policy      Policy `json:"policy,omitzero"`          // in force, with the model's defaults
}

// Credit is the total number of frames of a stream that the client may have sent. The number never decreases.
type Credit struct {
	SID         uint32 `json:"sid" want:"must"`
	CreditLimit uint64 `json:"credit_limit" want:"must"`
	Ack         uint64 `json:"ack,omitempty"` // number of ended frames
}

// Advise asks the client to send other frames. 0 = no change.
type Advise struct {
	SID      uint32  `json:"sid" want:"must"`
	FPS      float64 `json:"fps,omitempty" want:"rate"`
	Width    int     `json:"width,omitempty" want:"side"` // pixels
	Height   int     `json:"height,omitempty" want:"side"`
	Quality  int     `json:"quality,omitempty" want:"percent"` // of JPEG and WebP, 1 to 100
	KeyFrame bool    `json:"keyframe,omitempty"`
}

// Counts are the numbers of frames of a stream, and of the endings sent: Received = Results + Drops + Errors + frames
// in flight (in Closed: none).
type Counts struct {
	Received uint64 `json:"received,omitempty"` // Accepted, and frames refused with an error or a drop
	Accepted uint64 `json:"accepted" want:"must"`
	Results  uint64 `json:"results" want:"must"`
	Drops    uint64 `json:"drops" want:"must"`
	Errors   uint64 `json:"errors" want:"must"`
}

// Stats are statistics of a stream.
type Stats struct {
	SID     uint32  `json:"sid" want:"must"`
	Counts  Counts  `json:"counts" want:"must"`
	Waiting int     `json:"waiting,omitempty"` // frames not yet in a batch
	FPS     float64 `json:"fps,omitempty"`     // recent results per second
	AgeUS   int64   `json:"age_us,omitempty"`  // recent time from receipt to result
}

// ErrorMessage is an error of a frame (SID and Seq), of a stream (SID) or of the session.
type ErrorMessage struct {
	Code         string  `json:"code" want:"must,word"` // stream.Code, or unsupported_version
	Message      string  `json:"message" want:"must"`
	Retryable    bool    `json:"retryable,omitempty"`
	RetryAfterMS int     `json:"retry_after_ms,omitempty"` // 0 = unknown
	SID          *uint32 `json:"sid,omitempty"`
	Seq          *uint64 `json:"seq,omitempty"`
	Ack          uint64  `json:"ack,omitempty"` // with Seq: as in Result
	Limit        uint64  `json:"credit_limit,omitempty"`
	Trace        string  `json:"traceresponse,omitempty"` // with Seq: as in Result
	Fatal        bool    `json:"fatal,omitempty"`         // the connection is closed after this message
}

// GoAway announces that the server will close the connection.
type GoAway struct {
	TimeLeftMS int `json:"time_left_ms" want:"must"`
}

// Pong is the reply to Ping.
type Pong struct {
	T       int64 `json:"t" want:"must"`        // T of Ping
	ServerT int64 `json:"server_t" want:"must"` // microseconds since 1970 by the server's clock
}

// Closed is the last message of a stream.
type Closed struct {
	SID    uint32 `json:"sid" want:"must"`
	Reason string `json:"reason" want:"must,word"` // from CloseReasons
	Totals Counts `json:"totals" want:"must"`
}

// Attached is the reply to Attach.
type Attached struct {
	Session     string           `json:"session" want:"must,token"`
	ResumeToken string           `json:"resume_token" want:"must,token"` // replaces the token used
	ResumeMS    int              `json:"resume_ms,omitempty"`
	Streams     []AttachedStream `json:"streams,omitempty"` // existing streams, and ended streams named by Attach
}

// AttachedStream is a resumed stream.
type AttachedStream struct {
	SID           uint32  `json:"sid" want:"must"`
	ReceivedCount uint64  `json:"received_count" want:"must"` // arrived frames, as counted by credits
	ReceivedSeq   *uint64 `json:"received_seq,omitempty"`     // of the newest frame; nil = none
	CreditLimit   uint64  `json:"credit_limit" want:"must"`
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
