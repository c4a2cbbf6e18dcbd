package stream

// Reason says why a frame was dropped.
type Reason string

// The reasons for a drop. Each is counted by model and reason.
const (
	// a newer frame took the place in the mailbox, or was read from the source already
	Superseded Reason = "superseded"
	Overtaken  Reason = "overtaken"    // a newer frame's result was ready first
	Stale      Reason = "stale"        // an answer would miss the frame's age limit or deadline
	RateLimit  Reason = "rate"         // the frame exceeded the rate max_fps
	Memory     Reason = "memory"       // the byte budget was exhausted
	Closed     Reason = "closed"       // the stream was closed while the frame waited
	Flushed    Reason = "flushed"      // requested by the client (Stream.Flush)
	WindowFull Reason = "flow_control" // the window of a live server stream in Every was full
	OverQuota  Reason = "quota"        // the client exceeded its quota of frames, bytes or decoding
	Undecoded  Reason = "undecoded"    // the video decoder returned no picture for the frame
)

// Reasons lists every reason, for counters resolved once.
var Reasons = []Reason{Superseded, Overtaken, Stale, RateLimit, Memory, Closed, Flushed, WindowFull, OverQuota,
	Undecoded}

// CloseReason says why a stream ended.
type CloseReason string

// The reasons for a stream's end.
const (
	ByClient     CloseReason = "client"      // closed by the client
	ClientGone   CloseReason = "client_gone" // the connection broke or went silent
	SlowConsumer CloseReason = "slow_consumer"
	Idle         CloseReason = "idle"     // nothing was sent for longer than the idle time-out
	ByUnload     CloseReason = "unloaded" // the model was unloaded
	ByDrain      CloseReason = "draining" // the server is shutting down
	ByError      CloseReason = "error"    // a fatal error, sent before the close
	SourceEnded  CloseReason = "source_ended"
)
