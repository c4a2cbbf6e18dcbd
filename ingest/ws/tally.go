package ws

import (
	"millrace/internal/wire"
	"millrace/stream"
)

// tally counts what a client was told of a stream's frames, which is not what
// the stream has: frames that were refused never came to it, and a result that
// cannot be sent is an error. It is the writer's.
type tally struct {
	results, drops, errors uint64
}

// note counts the ending of a frame as it is sent.
func (t *tally) note(outcome stream.Outcome) {
	if outcome == stream.Answered {
		t.results++
	} else {
		t.errors++
	}
}

// counts are the frames of the stream so far: those whose ending was told, by how
// they ended, and those on their way.
func (c *channel) counts() wire.Counts {
	n := wire.Counts{Received: c.received.Load(), Results: c.told.results, Drops: c.told.drops, Errors: c.told.errors}
	if st := c.stream.Load(); st != nil {
		n.Accepted = st.Counts().Accepted
	}
	return n
}

// totals are the counts when the stream has ended. A frame that came later than
// its end is none of it: its error is on its way.
func (c *channel) totals() wire.Counts {
	n := c.counts()
	n.Received = n.Results + n.Drops + n.Errors
	return n
}
