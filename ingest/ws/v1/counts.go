package v1

import "millrace/stream"

// counts counts the endings that a client was told of a stream's frames. That is not what the stream counts: frames that were
// refused never came to it, and a result that cannot be sent is an error.
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
