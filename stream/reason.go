package stream

// Reason says why a frame was dropped.
type Reason string

// The reasons for a drop. Each is counted by model and reason.
const (
	Superseded Reason = "superseded"   // a newer frame took its place in the mailbox, or was read from the source already
	Overtaken  Reason = "overtaken"    // a newer frame's result was ready first
	Stale      Reason = "stale"        // it would have been answered later than its age or deadline allows
	RateLimit  Reason = "rate"         // the frame was beyond the rate that max_fps allows
	Memory     Reason = "memory"       // the byte budget was exhausted
	Closed     Reason = "closed"       // its stream was closed while it waited
	Flushed    Reason = "flushed"      // the client asked for it (Stream.Flush)
	WindowFull Reason = "flow_control" // of a live server stream in Every: its window was full
	OverQuota  Reason = "quota"        // its client is over its quota of frames, bytes or decoding
	Undecoded  Reason = "undecoded"    // its video's decoder returned no picture for it
)

// Reasons lists every reason, for counters that are resolved once.
var Reasons = []Reason{Superseded, Overtaken, Stale, RateLimit, Memory, Closed, Flushed, WindowFull, OverQuota, Undecoded}

// CloseReason says why a stream ended.
type CloseReason string

// The reasons for a stream's end.
const (
	ByClient     CloseReason = "client"      // the client closed it
	ClientGone   CloseReason = "client_gone" // the connection broke or went silent
	SlowConsumer CloseReason = "slow_consumer"
	Idle         CloseReason = "idle"     // nothing was sent for longer than the idle time-out
	ByUnload     CloseReason = "unloaded" // the model was unloaded
	ByDrain      CloseReason = "draining" // the server is shutting down
	ByError      CloseReason = "error"    // a fatal error, which was sent before
	SourceEnded  CloseReason = "source_ended"
)
