package wire

// Ready is the server's first message: a new session.
type Ready struct {
	Session     string `json:"session" want:"must,token"`
	ResumeToken string `json:"resume_token,omitempty" want:"no token"` // for Attach; "" = cannot be resumed
	ResumeMS    int    `json:"resume_ms,omitempty"`                    // how long the session outlives its connection
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
	SID         uint32 `json:"sid" want:"must"`
	CreditLimit uint64 `json:"credit_limit" want:"must"` // see Credit
	Policy      Policy `json:"policy,omitzero"`          // as it holds, the model's defaults filled in
}

// Credit says how many frames of a stream the client may have sent in all. That
// number never falls.
type Credit struct {
	SID         uint32 `json:"sid" want:"must"`
	CreditLimit uint64 `json:"credit_limit" want:"must"`
	Ack         uint64 `json:"ack,omitempty"` // frames that have ended so far
}

// Advise asks the client to send otherwise. 0 = as it is.
type Advise struct {
	SID      uint32  `json:"sid" want:"must"`
	FPS      float64 `json:"fps,omitempty" want:"rate"`
	Width    int     `json:"width,omitempty" want:"side"` // pixels
	Height   int     `json:"height,omitempty" want:"side"`
	Quality  int     `json:"quality,omitempty" want:"percent"` // of JPEG and WebP, 1 to 100
	KeyFrame bool    `json:"keyframe,omitempty"`
}

// Counts are the frames of a stream, and by how they ended as the client was told:
// Received = Results + Drops + Errors and those on their way, which are none in
// Closed.
type Counts struct {
	Received uint64 `json:"received,omitempty"` // Accepted, and those that were refused: each ended as an error or a drop
	Accepted uint64 `json:"accepted" want:"must"`
	Results  uint64 `json:"results" want:"must"`
	Drops    uint64 `json:"drops" want:"must"`
	Errors   uint64 `json:"errors" want:"must"`
}

// Stats tells how a stream fares.
type Stats struct {
	SID     uint32  `json:"sid" want:"must"`
	Counts  Counts  `json:"counts" want:"must"`
	Waiting int     `json:"waiting,omitempty"` // frames not yet bound to a batch
	FPS     float64 `json:"fps,omitempty"`     // results a second, of late
	AgeUS   int64   `json:"age_us,omitempty"`  // from receipt to result, of late
}

// ErrorMessage tells of an error: of a frame (SID and Seq), of a stream (SID) or
// of the session.
type ErrorMessage struct {
	Code         string  `json:"code" want:"must,word"` // stream.Code, or unsupported_version
	Message      string  `json:"message" want:"must"`
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
	TimeLeftMS int `json:"time_left_ms" want:"must"`
}

// Pong answers Ping.
type Pong struct {
	T       int64 `json:"t" want:"must"`        // as Ping had it
	ServerT int64 `json:"server_t" want:"must"` // microseconds since 1970 of the server's clock
}

// Closed is the last message of a stream.
type Closed struct {
	SID    uint32 `json:"sid" want:"must"`
	Reason string `json:"reason" want:"must,word"` // one of CloseReasons
	Totals Counts `json:"totals" want:"must"`
}

// Attached answers Attach.
type Attached struct {
	Session     string           `json:"session" want:"must,token"`
	ResumeToken string           `json:"resume_token" want:"must,token"` // in place of the one that was used
	ResumeMS    int              `json:"resume_ms,omitempty"`
	Streams     []AttachedStream `json:"streams,omitempty"` // those that still live
}

// AttachedStream is a stream that was resumed.
type AttachedStream struct {
	SID           uint32  `json:"sid" want:"must"`
	ReceivedCount uint64  `json:"received_count" want:"must"` // frames that arrived, as credits count them
	ReceivedSeq   *uint64 `json:"received_seq,omitempty"`     // of the latest; nil = there is none
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
