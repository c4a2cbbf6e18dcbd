package clips

import (
	"slices"
	"sync/atomic"
	"time"

	"millrace/ingest/sources"
	"millrace/stream/buf"
)

// entry is a packet, or a line of text about the objects of a frame. Its data is in leased memory.
type entry struct {
	lease    *buf.Buf
	data     []byte
	text     bool
	key      bool
	pts, dts time.Duration
	length   time.Duration // of a packet, until the next picture
	ticks    int64
	at       int // offset of the decode time of a packet
}

// blockSize is the memory of one lease. Entries share a block, because a lease has up to a quarter of unused memory.
const blockSize = 64<<10 - buf.Headroom

// ring has the newest entries of a stream: packets from a key frame on. The text of earlier frames is dropped.
type ring struct {
	memory *buf.Pool
	most   int64  // bytes of entries
	all    *total // of several streams, or nil
	block  *buf.Buf
	free   []byte // of block

	packets, text []entry
	bytes         int64
}

// keep copies data to leased memory.
func (r *ring) keep(e entry, data []byte) (entry, error) {
	if len(data) > len(r.free) {
		n := max(blockSize, len(data))
		lease, err := r.memory.Lease(n)
		if err != nil {
			return e, err
		}
		if n == blockSize {
			r.block.Release()
			r.block, r.free = lease, lease.Bytes()
		} else {
			e.lease, e.data = lease, lease.Bytes()
			copy(e.data, data)
			return e, nil
		}
	}
	n := copy(r.free, data)
	e.lease, e.data = r.block.Retain(), r.free[:n:n]
	r.free = r.free[n:]
	return e, nil
}

// add adds a packet, unless memory is missing. The packets before the last key frame up to the time keep are dropped.
func (r *ring) add(p *sources.Fragment, keep time.Duration) (e entry, ok bool) {
	if len(r.packets) == 0 && !p.Key {
		return e, false
	}
	e = entry{key: p.Key, pts: p.PTS, dts: p.DTS, length: p.Length, ticks: p.Ticks, at: p.TimeAt()}
	for {
		full := r.bytes+int64(len(p.Data)) > r.most
		var err error
		if !full && r.all.take(int64(len(p.Data))) {
			if e, err = r.keep(e, p.Data); err == nil {
				break
			}
			r.all.give(int64(len(p.Data)))
		}
		if len(r.packets) == 0 {
			return e, false
		}
		r.drop(r.keyBefore(len(r.packets)))
		if len(r.packets) == 0 && !p.Key {
			return e, false
		}
	}
	r.packets = append(r.packets, e)
	r.bytes += int64(len(e.data))
	n := 0
	for i := 1; i < len(r.packets) && r.packets[i].dts <= keep; i++ {
		if r.packets[i].key {
			n = i
		}
	}
	r.drop(n)
	return e, true
}

// addText adds a line about the frame with a time.
func (r *ring) addText(line []byte, at time.Duration) (e entry, ok bool) {
	n := int64(len(line))
	if len(r.packets) == 0 || r.bytes+n > r.most || !r.all.take(n) {
		return e, false
	}
	e, err := r.keep(entry{text: true, pts: at, dts: at}, line)
	if err != nil {
		r.all.give(n)
		return e, false
	}
	r.text = append(r.text, e)
	r.bytes += n
	return e, true
}

// keyBefore returns the end of the oldest pictures that need no others: the place of the second key frame, or n.
func (r *ring) keyBefore(n int) int {
	for i := 1; i < n; i++ {
		if r.packets[i].key {
			return i
		}
	}
	return n
}

// drop drops the first n packets, and the text before the rest.
func (r *ring) drop(n int) {
	if n == 0 {
		return
	}
	for i := range r.packets[:n] {
		r.release(&r.packets[i])
	}
	r.packets = r.packets[n:]
	r.text = slices.DeleteFunc(r.text, func(e entry) bool { // not sorted: models have their own delays
		old := len(r.packets) == 0 || e.pts < r.packets[0].dts
		if old {
			r.release(&e)
		}
		return old
	})
}

func (r *ring) release(e *entry) {
	r.bytes -= int64(len(e.data))
	r.all.give(int64(len(e.data)))
	e.lease.Release()
	*e = entry{}
}

// clear drops everything.
func (r *ring) clear() {
	r.drop(len(r.packets))
	r.block.Release()
	r.block, r.free, r.packets, r.text = nil, nil, nil, nil
}

// from returns the place of the last key frame up to a time; 0 when the first packet is later.
func (r *ring) from(at time.Duration) int {
	for i := len(r.packets) - 1; i > 0; i-- {
		if r.packets[i].key && r.packets[i].pts <= at {
			return i
		}
	}
	return 0
}

// total bounds the bytes of several streams. A nil total has no bound.
type total struct {
	most int64
	used atomic.Int64
}

// take counts n bytes, unless the bound is exceeded.
func (t *total) take(n int64) bool {
	if t == nil || t.used.Add(n) <= t.most {
		return true
	}
	t.used.Add(-n)
	return false
}

func (t *total) give(n int64) {
	if t != nil {
		t.used.Add(-n)
	}
}
