package v1

import (
	"millrace/internal/wire"
	"millrace/stream"
)

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

// counts are the frames of the stream so far: those whose ending was told, by how they ended, and those that came.
func (c *channel) counts() wire.Counts {
	n := wire.Counts{Received: c.received.Load(), Results: c.told.results, Drops: c.told.drops, Errors: c.told.errors}
	if st := c.stream.Load(); st != nil {
		n.Accepted = st.Counts().Accepted
	}
	return n
}

// totals are the counts when the stream has ended. A frame that came after its end is not among them: its error follows.
func (c *channel) totals() wire.Counts {
	n := c.counts()
	n.Received = n.Results + n.Drops + n.Errors
	return n
}
