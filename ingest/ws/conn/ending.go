package conn

import (
	"millrace/ingest"
	"millrace/internal/wire"
	"millrace/stream"
)

// End says why a connection ended. Each is counted.
type End string

// The ends.
const (
	EndClient    End = "client"        // the client closed it
	EndGone      End = "client_gone"   // the connection broke, or went silent
	EndSlow      End = "slow_consumer" // the client does not read its replies
	EndIdle      End = "idle"          // no message for longer than Options.Idle
	EndUnloaded  End = "unloaded"      // its model was unloaded
	EndDraining  End = "draining"      // the server is shutting down
	EndTooLarge  End = "too_large"     // a message over Options.MaxMessage
	EndMalformed End = "malformed"     // not the WebSocket protocol
	EndRefused   End = "refused"       // the upgrade or the stream was refused
	EndFault     End = "fault"         // a panic, or a stream that failed
	EndTakenOver End = "taken_over"    // another connection resumed its session
)

// Ends lists every End, for counters that are resolved once.
var Ends = []End{EndClient, EndGone, EndSlow, EndIdle, EndUnloaded, EndDraining, EndTooLarge, EndMalformed, EndRefused, EndFault, EndTakenOver}

// Ending is how a connection ends: the first one counts.
type Ending struct {
	Why  End
	Code wire.CloseCode // of the close frame; 0 = the connection is closed without one
	Err  error          // told in a message before the close frame, or nil
}

// Gone says that nobody is there to read replies.
func (e *Ending) Gone() bool { return e.Why == EndGone || e.Why == EndClient || e.Why == EndSlow }

// reason says what the connection's end means to its streams.
func (e *Ending) reason() stream.CloseReason {
	switch e.Why {
	case EndClient, EndGone:
		return stream.ClientGone
	case EndSlow:
		return stream.SlowConsumer
	case EndIdle:
		return stream.Idle
	case EndDraining:
		return stream.ByDrain
	case EndUnloaded:
		return stream.ByUnload
	}
	return stream.ByError
}

// CloseStream closes a stream of the connection, which may still have frames in flight.
func (e *Ending) CloseStream(st *stream.Stream) {
	if e.Why == EndDraining {
		st.CloseWith(stream.ByDrain, e.Err)
		return
	}
	st.Close(e.reason())
}

// refusal is the ending of a connection that its protocol refused.
func refusal(err error) Ending {
	code := wire.CloseInternal
	switch stream.CodeOf(err) {
	case stream.NotFound, stream.Unloaded:
		code = wire.CloseNotFound
	case stream.Overloaded, stream.Unavailable:
		code = wire.CloseOverloaded
	case stream.Draining:
		code = wire.CloseDraining
	case stream.Unauthenticated:
		code = wire.CloseUnauthenticated
	case stream.InvalidArgument, stream.Unsupported, stream.PermissionDenied:
		code = wire.ClosePolicy
	}
	return Ending{EndRefused, code, err}
}

// rejection is the ending of a connection that was not let in.
func rejection(err error) Ending {
	e := refusal(err)
	if stream.CodeOf(err) == stream.Overloaded {
		e.Code = wire.CloseTooMany
	}
	return e
}

// StreamEnding is the ending of a connection whose one stream ended for why; false where that is the connection's own doing.
func StreamEnding(why stream.CloseReason, model string) (Ending, bool) {
	switch why {
	case stream.ByUnload:
		return Ending{EndUnloaded, wire.CloseNotFound, stream.Errorf(stream.Unloaded, "", "model %s was unloaded", model)}, true
	case stream.ByDrain:
		return Draining(), true
	case stream.Idle:
		return Ending{EndIdle, wire.CloseIdle, stream.Errorf(stream.Timeout, "", "nothing was sent for too long")}, true
	case stream.ByError:
		return Ending{EndFault, wire.CloseInternal, stream.Errorf(stream.Internal, "", "the stream to model %s failed", model)}, true
	}
	return Ending{}, false
}

// TakenOver is the ending of a connection whose session another one has resumed.
func TakenOver() Ending {
	return Ending{EndTakenOver, wire.CloseTakenOver, stream.Errorf(stream.Conflict, "", "another connection has resumed this session")}
}

// Malformed is the ending of a connection whose client does not speak the protocol.
func Malformed(err error) Ending { return Ending{EndMalformed, wire.CloseMalformed, err} }

// Draining is the ending of every connection when the server shuts down.
func Draining() Ending {
	return Ending{EndDraining, wire.CloseGoingAway, ingest.ErrDraining}
}
