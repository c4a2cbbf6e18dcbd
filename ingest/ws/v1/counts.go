package v1

import "millrace/stream"

// counts counts the endings of a stream's frames that were sent to the client. The
// stream's counts differ: refused frames never reached it, and a result that cannot be
// sent becomes an error.
type counts struct {
	results, drops, errors uint64
}

// add counts the ending of a frame as it is sent.
func (n *counts) add(outcome stream.Outcome) {
	if outcome == stream.Answered {
		n.results++
	} else {
		n.errors++
	}
}
