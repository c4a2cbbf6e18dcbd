package ws

import (
	"sync/atomic"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
	"millrace/stream"
)

// End says why a session ended. Each is counted.
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

// Close codes of our own.
const (
	closeBad      = int(wire.CloseMalformed)
	closeUnknown  = int(wire.CloseUnauthenticated)
	closeNotFound = int(wire.CloseNotFound)
	closeIdle     = int(wire.CloseIdle)
	closeTaken    = int(wire.CloseTakenOver)
	closeTooMany  = int(wire.CloseTooMany)
	closeDraining = int(wire.CloseDraining)
)

// Ends lists every End, for counters that are resolved once.
var Ends = []End{EndClient, EndGone, EndSlow, EndIdle, EndUnloaded, EndDraining, EndTooLarge, EndMalformed, EndRefused, EndFault, EndTakenOver}

// ending is how a session ends: the first one counts.
type ending struct {
	why  End
	code int   // of the close frame; 0 = the connection is closed without one
	err  error // told in a message before the close frame, or nil
}

// gone says that nobody is there to read replies.
func (e *ending) gone() bool { return e.why == EndGone || e.why == EndClient || e.why == EndSlow }

// stream says what the session's end means to its streams.
func (e *ending) stream() stream.CloseReason {
	switch e.why {
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

// refusal is the ending of a session whose stream could not be opened.
func refusal(err error) ending {
	code := websocket.CloseInternalServerErr
	switch stream.CodeOf(err) {
	case stream.NotFound, stream.Unloaded:
		code = closeNotFound
	case stream.Overloaded, stream.Unavailable:
		code = websocket.CloseTryAgainLater
	case stream.Draining:
		code = closeDraining
	case stream.Unauthenticated:
		code = closeUnknown
	case stream.InvalidArgument, stream.Unsupported, stream.PermissionDenied:
		code = websocket.ClosePolicyViolation
	}
	return ending{EndRefused, code, err}
}

// turnedAway is the ending of a session that was not let in.
func turnedAway(err error) ending {
	e := refusal(err)
	if stream.CodeOf(err) == stream.Overloaded {
		e.code = closeTooMany
	}
	return e
}

// doneEnding is the session's ending when its stream ended by itself.
func doneEnding(why stream.CloseReason, model string) (ending, bool) {
	switch why {
	case stream.ByUnload:
		return ending{EndUnloaded, closeNotFound, stream.Errorf(stream.Unloaded, "", "model %s was unloaded", model)}, true
	case stream.ByDrain:
		return draining(), true
	case stream.Idle:
		return ending{EndIdle, closeIdle, stream.Errorf(stream.Timeout, "", "nothing was sent for too long")}, true
	case stream.ByError:
		return ending{EndFault, websocket.CloseInternalServerErr, stream.Errorf(stream.Internal, "", "the stream to model %s failed", model)}, true
	}
	return ending{}, false
}

func takenOver() ending {
	return ending{EndTakenOver, closeTaken, stream.Errorf(stream.Conflict, "", "another connection has resumed this session")}
}

func malformed(err error) ending { return ending{EndMalformed, closeBad, err} }

func draining() ending {
	return ending{EndDraining, websocket.CloseGoingAway, stream.Errorf(stream.Draining, "", "the server is shutting down")}
}

// counts counts ends by a word for each of them: all are there from the start.
type counts map[string]*atomic.Uint64

func newCounts[T ~string](words []T) counts {
	c := counts{}
	for _, w := range words {
		c[string(w)] = new(atomic.Uint64)
	}
	return c
}

func (c counts) add(word string) {
	if n := c[word]; n != nil {
		n.Add(1)
	}
}

// read returns the counts by words of type T.
func read[T ~string](c counts) map[T]uint64 {
	out := make(map[T]uint64, len(c))
	for w, n := range c {
		out[T(w)] = n.Load()
	}
	return out
}
