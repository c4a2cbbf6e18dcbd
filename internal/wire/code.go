package wire

import "strconv"

// The subprotocol, and what stands before a ticket that is offered beside it by
// clients which cannot set headers.
const (
	Subprotocol  = "millrace.v1"
	TicketPrefix = "millrace.ticket."
)

// CloseCode is the code of a WebSocket close frame. An error message comes
// before every close but CloseNormal and that of a slow consumer.
type CloseCode uint16

// The close codes.
const (
	CloseNormal          CloseCode = 1000
	CloseGoingAway       CloseCode = 1001 // after goaway
	ClosePolicy          CloseCode = 1008 // refused
	CloseTooLarge        CloseCode = 1009 // a message over limits.max_message
	CloseInternal        CloseCode = 1011 // a fault of the server
	CloseOverloaded      CloseCode = 1013 // try again later
	CloseMalformed       CloseCode = 4400 // not this protocol
	CloseUnauthenticated CloseCode = 4401 // a ticket that is not good
	CloseNotFound        CloseCode = 4404 // no such model
	CloseIdle            CloseCode = 4408 // nothing was sent for too long
	CloseTakenOver       CloseCode = 4409 // another connection resumed the session
	CloseTooMany         CloseCode = 4429 // sessions
	CloseDraining        CloseCode = 4503 // the server is shutting down
)

// CloseCodes lists every code.
var CloseCodes = []CloseCode{
	CloseNormal, CloseGoingAway, ClosePolicy, CloseTooLarge, CloseInternal, CloseOverloaded, CloseMalformed,
	CloseUnauthenticated, CloseNotFound, CloseIdle, CloseTakenOver, CloseTooMany, CloseDraining,
}

var closeNames = map[CloseCode]string{
	CloseNormal: "normal", CloseGoingAway: "going_away", ClosePolicy: "policy", CloseTooLarge: "too_large",
	CloseInternal: "internal", CloseOverloaded: "overloaded", CloseMalformed: "malformed",
	CloseUnauthenticated: "unauthenticated", CloseNotFound: "not_found", CloseIdle: "idle",
	CloseTakenOver: "taken_over", CloseTooMany: "too_many", CloseDraining: "draining",
}

// String returns the code's name, or its number when it is none of ours.
func (c CloseCode) String() string {
	if n, ok := closeNames[c]; ok {
		return n
	}
	return strconv.Itoa(int(c))
}

// CloseReasons are the words for why a stream ended, as `closed` gives them;
// they are stream.CloseReason's.
var CloseReasons = []string{
	"client", "client_gone", "slow_consumer", "idle", "unloaded", "draining", "error", "source_ended",
}
