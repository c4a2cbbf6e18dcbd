package wire

import (
	"strconv"

	"millrace/stream/coded"
)

// The subprotocol, and the prefix of a ticket: clients that cannot set headers offer the ticket as a further
// subprotocol.
const (
	Subprotocol  = "millrace.v1"
	TicketPrefix = "millrace.ticket."
)

// CloseCode is the code of a WebSocket close frame. An error message is sent before every close except CloseNormal
// and the close of a slow consumer.
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
	CloseUnauthenticated CloseCode = 4401 // an invalid ticket
	CloseNotFound        CloseCode = 4404 // no such model
	CloseIdle            CloseCode = 4408 // nothing was sent for too long
	CloseTakenOver       CloseCode = 4409 // another connection resumed the session
	CloseTooMany         CloseCode = 4429 // sessions
	CloseDraining        CloseCode = 4503 // the server is shutting down
)

// closeCodes maps codes of errors to close codes.
var closeCodes = map[coded.Code]CloseCode{
	coded.InvalidArgument:  ClosePolicy,
	coded.Unsupported:      ClosePolicy,
	coded.PermissionDenied: ClosePolicy,
	coded.Conflict:         ClosePolicy,
	coded.TooLarge:         CloseTooLarge,
	coded.NotFound:         CloseNotFound,
	coded.Unloaded:         CloseNotFound,
	coded.Unauthenticated:  CloseUnauthenticated,
	coded.FlowControl:      CloseOverloaded,
	coded.Overloaded:       CloseOverloaded,
	coded.Unavailable:      CloseOverloaded,
	coded.Timeout:          CloseOverloaded,
	coded.Draining:         CloseDraining,
	coded.Canceled:         CloseInternal, // the client has left: nobody reads the code
	coded.Internal:         CloseInternal,
}

// CloseCodeOf returns the close code of a connection refused with err.
func CloseCodeOf(err error) CloseCode {
	if c, known := closeCodes[coded.CodeOf(err)]; known {
		return c
	}
	return CloseInternal
}

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

// String returns the code's name, or its number for a code not in CloseCodes.
func (c CloseCode) String() string {
	if n, ok := closeNames[c]; ok {
		return n
	}
	return strconv.Itoa(int(c))
}

// CloseReasons are the reasons of `closed`, equal to the values of stream.CloseReason.
var CloseReasons = []string{
	"client", "client_gone", "slow_consumer", "idle", "unloaded", "draining", "error", "source_ended",
}
