package v1

import "millrace/stream"

// endingCounts counts the endings sent to the client for a stream's frames. The stream's own counts differ: the stream
// never sees refused frames, and an unsendable result becomes an error.
type endingCounts struct {
	results, drops, errors uint64
}

// add counts the ending of a frame at the time of sending.
func (n *endingCounts) add(outcome stream.Outcome) {
	if outcome == stream.Answered {
		n.results++
	} else {
		n.errors++
	}
}
