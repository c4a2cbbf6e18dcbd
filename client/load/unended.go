package load

import "time"

// sentFrame is when a frame was due and when it was sent, since the start.
type sentFrame struct {
	due, sent time.Duration
	open      bool
}

// unended are the frames of a stream that have no ending yet, by their number.
// Frames come in order and end in nearly that order, so a ring holds them.
type unended struct {
	ring  []sentFrame // of a power of two
	first uint64      // the oldest that may be open
	next  uint64      // the number of the next frame
	open  int
}

// put adds the frame next.
func (p *unended) put(due, sent time.Duration) {
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

func (p *unended) at(n uint64) *sentFrame { return &p.ring[n&uint64(len(p.ring)-1)] }

// get returns the open frame n; remove says that this was its ending.
func (p *unended) get(n uint64, remove bool) (m sentFrame, ok bool) {
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

// markSent notes when the frame n was sent, unless it has ended already.
func (p *unended) markSent(n uint64, sent time.Duration) {
	if n >= p.first && p.at(n).open {
		p.at(n).sent = sent
	}
}

// undo takes back the last put: the frame was not sent. It reports false when
// the frame has ended all the same.
func (p *unended) undo() bool {
	_, ok := p.get(p.next-1, true)
	return ok
}
