package conn

import (
	"millrace/ingest"
	"millrace/internal/wire"
	"millrace/stream"
)

// End is the reason for a connection's end. Each reason has a counter.
type End string

// The reasons.
const (
	EndClient    End = "client"        // closed by the client
	EndGone      End = "client_gone"   // the connection broke, or the client was silent too long
	EndSlow      End = "slow_consumer" // the client does not read the replies
	EndIdle      End = "idle"          // no message for longer than Options.Idle, or a message arrives too slowly
	EndUnloaded  End = "unloaded"      // the model was unloaded
	EndDraining  End = "draining"      // the server is shutting down
	EndTooLarge  End = "too_large"     // a message over Options.MaxMessage
	EndMalformed End = "malformed"     // not the WebSocket protocol
	EndRefused   End = "refused"       // the upgrade, the stream, or a flood of pings or text messages was refused
	EndFault     End = "fault"         // a panic, or a failed stream
	EndTakenOver End = "taken_over"    // another connection resumed the session
	EndRevoked   End = "revoked"       // the client's credentials are no longer valid
)

// Ends lists every End, for counters created once.
var Ends = []End{EndClient, EndGone, EndSlow, EndIdle, EndUnloaded, EndDraining, EndTooLarge, EndMalformed, EndRefused,
	EndFault, EndTakenOver, EndRevoked}

// Ending describes the end of a connection. Only the first Ending of a connection
// counts.
type Ending struct {
	Reason End
	Code   wire.CloseCode // of the close frame; 0 = close without a close frame
	Err    error          // sent in a message before the close frame, or nil
}

// Gone reports whether the client does not read replies any more.
func (e *Ending) Gone() bool {
	return e.Reason == EndGone || e.Reason == EndClient || e.Reason == EndSlow
}

// reason returns the close reason of the connection's streams.
func (e *Ending) reason() stream.CloseReason {
	switch e.Reason {
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

// CloseStream closes a stream of the connection, possibly with frames in flight.
func (e *Ending) CloseStream(st *stream.Stream) {
	if e.Reason == EndDraining {
		st.CloseWith(stream.ByDrain, e.Err)
		return
	}
	st.Close(e.reason())
}

// refusal returns the ending of a connection refused by its protocol.
func refusal(err error) Ending { return Ending{EndRefused, wire.CloseCodeOf(err), err} }

// rejection returns the ending of a rejected connection. Exceeding a limit on connections, total or per client, has
// its own close code.
func rejection(err error) Ending {
	e := refusal(err)
	switch stream.CodeOf(err) {
	case stream.Overloaded, stream.FlowControl:
		e.Code = wire.CloseTooMany
	}
	return e
}

// StreamEnding is the ending of a connection whose only stream the server has closed for the reason why; err tells
// the client.
func StreamEnding(why stream.CloseReason, err error) Ending {
	switch why {
	case stream.ByUnload:
		return Ending{EndUnloaded, wire.CloseNotFound, err}
	case stream.ByDrain:
		return Draining()
	case stream.Idle:
		return Ending{EndIdle, wire.CloseIdle, err}
	}
	return Ending{EndFault, wire.CloseInternal, err}
}

// Malformed returns the ending after the client violated the protocol.
func Malformed(err error) Ending { return Ending{EndMalformed, wire.CloseMalformed, err} }

// Draining returns the ending of every connection when the server shuts down.
func Draining() Ending {
	return Ending{EndDraining, wire.CloseGoingAway, ingest.ErrDraining}
}
