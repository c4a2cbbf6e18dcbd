package load

import "time"

// moment is when a frame was due and when it was sent, since the start.
type moment struct {
	due, sent time.Duration
	open      bool
}

// pending are the frames of a stream that have no ending yet, by their number.
// Frames come in order and end in nearly that order, so a ring holds them.
type pending struct {
	ring  []moment // of a power of two
	first uint64   // the oldest that may be open
	next  uint64   // the number of the next frame
	open  int
}

// put adds the frame next.
func (p *pending) put(due, sent time.Duration) {
	if int(p.next-p.first) == len(p.ring) {
		bigger := make([]moment, max(2*len(p.ring), 16))
		for n := p.first; n < p.next; n++ {
			bigger[n&uint64(len(bigger)-1)] = *p.at(n)
		}
		p.ring = bigger
	}
	*p.at(p.next) = moment{due, sent, true}
	p.next++
	p.open++
}

func (p *pending) at(n uint64) *moment { return &p.ring[n&uint64(len(p.ring)-1)] }

// get returns the open frame n; remove says that this was its ending.
func (p *pending) get(n uint64, remove bool) (m moment, ok bool) {
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

// handed notes when the frame n was sent, unless it has ended already.
func (p *pending) handed(n uint64, sent time.Duration) {
	if n >= p.first && p.at(n).open {
		p.at(n).sent = sent
	}
}

// undo takes back the last put: the frame was not sent. It reports false when
// the frame has ended all the same.
func (p *pending) undo() bool {
	_, ok := p.get(p.next-1, true)
	return ok
}
