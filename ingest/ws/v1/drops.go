package v1

import (
	"slices"
	"sync"

	"millrace/internal/wire"
	"millrace/stream"
)

// pendingDrops is the dropped frames of a channel that no message has named yet. It is safe for concurrent use.
type pendingDrops struct {
	mu      sync.Mutex
	all     []dropRun
	ranges  int // of all, together
	notices int // entries for them in the outbox
}

// dropRun is the frames dropped for one reason, as ranges of seq.
type dropRun struct {
	reason stream.Reason
	ranges []wire.Range
	frames uint64
}

// noticeRanges is how many ranges of dropped frames one entry of the outbox stands for: they take no more memory than the entry
// counts. So the bounds of the outbox hold for what is noted, too, also where a client leaves gaps between its seqs.
const noticeRanges = 16

// note notes a dropped frame, and reports whether the outbox needs an entry, or one more, for what is noted.
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

// take returns what is noted, for the writer. The entries that are left in the outbox find nothing.
func (p *pendingDrops) take() []dropRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.all
	p.all, p.ranges, p.notices = nil, 0, 0
	return d
}
