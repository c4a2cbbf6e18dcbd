package load

import "time"

// sentFrame has the due time and the sending time of a frame, since the start.
type sentFrame struct {
	due, sent time.Duration
	open      bool
}

// openFrames has the frames of a stream without an ending, by number, in a ring, since frames end in nearly the order
// of sending.
type openFrames struct {
	ring  []sentFrame // the length is a power of two
	first uint64      // the oldest frame possibly open
	next  uint64      // the number of the next frame
	open  int
}

// put adds a frame with the number next.
func (p *openFrames) put(due, sent time.Duration) {
	if int(p.next-p.first) == len(p.ring) {
		bigger := make([]sentFrame, max(2*len(p.ring), 16))
		for n := p.first; n < p.next; n++ {
			bigger[n&uint64(len(bigger)-1)] = *p.at(n)
		}
		p.ring = bigger
	}
	*p.at(p.next) = sentFrame{due, sent, true}
	p.next++
	p.open++
}

func (p *openFrames) at(n uint64) *sentFrame { return &p.ring[n&uint64(len(p.ring)-1)] }

// get returns the open frame n, and removes the frame if remove is set.
func (p *openFrames) get(n uint64, remove bool) (m sentFrame, ok bool) {
	if n < p.first || n >= p.next || !p.at(n).open {
		return m, false
	}
	m = *p.at(n)
	if remove {
		p.at(n).open = false
		p.open--
		for p.first < p.next && !p.at(p.first).open {
			p.first++
		}
	}
	return m, true
}

// markSent sets the sending time of frame n, unless the frame has ended.
func (p *openFrames) markSent(n uint64, sent time.Duration) {
	if n >= p.first && p.at(n).open {
		p.at(n).sent = sent
	}
}

// undo reverts the last put, because the frame was not sent. undo returns false if the frame has ended nevertheless.
func (p *openFrames) undo() bool {
	_, ok := p.get(p.next-1, true)
	return ok
}
