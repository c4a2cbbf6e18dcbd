package v1

import (
	"slices"
	"sync"

	"millrace/internal/wire"
	"millrace/stream"
)

// pendingDrops holds the dropped frames of a channel not yet reported in a message. pendingDrops is safe for
// concurrent use.
type pendingDrops struct {
	mu      sync.Mutex
	all     []dropRun
	ranges  int // of all, together
	notices int // entries for the drops in the outbox
}

// dropRun lists the frames dropped for one reason, as ranges of seq.
type dropRun struct {
	reason stream.Reason
	ranges []wire.Range
	frames uint64
}

// noticeRanges is the most ranges of dropped frames per entry of the outbox: the ranges take no more memory than the
// entry counts. The outbox's bounds thus apply to noted drops too, even when a client leaves gaps between its seqs.
const noticeRanges = 16

// note records a dropped frame, and reports whether the outbox needs another entry for the noted drops.
func (p *pendingDrops) note(seq uint64, why stream.Reason) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.all, func(d dropRun) bool { return d.reason == why })
	if i < 0 {
		i = len(p.all)
		p.all = append(p.all, dropRun{reason: why})
	}
	d := &p.all[i]
	before := len(d.ranges)
	d.frames++
	d.ranges = wire.AddSeq(d.ranges, seq)
	p.ranges += len(d.ranges) - before
	if p.ranges <= p.notices*noticeRanges {
		return false
	}
	p.notices++
	return true
}

// take returns and clears the noted drops, for the writer. The writer of a later entry in the outbox finds no drops.
func (p *pendingDrops) take() []dropRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.all
	p.all, p.ranges, p.notices = nil, 0, 0
	return d
}
