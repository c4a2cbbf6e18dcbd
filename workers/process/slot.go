package process

import (
	"sync/atomic"
	"time"

	"millrace/batching"
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// slot has the resources of one batch in flight: shared memory for the child's reads and writes, and reused memory.
type slot struct {
	in, out      *segment // nil until first needed
	batch        int      // id of the batch's own memory, known to the child; 0 = none
	used         int      // bytes of in used by the batch
	usedOut      int      // bytes of out used by the last results
	wantOut      int      // further bytes needed by the last results
	oversizedIn  oversizeCount
	oversizedOut oversizeCount

	id            uint64
	began         atomic.Int64  // Instant when the child began the batch, as far as known; 0 = not begun
	begunReceived bool          // the child has sent begun; process.mu guards begun
	waited        time.Duration // time since began spent waiting for clients to take parts of the answer
	answers       chan *message // of this batch
	timer         *time.Timer

	text    []byte
	data    [][]byte   // pipe form: the bytes after the text
	after   int        // their size
	leases  []*buf.Buf // pipe form: memory of pictures decoded for the message
	lo, hi  int        // the range of the batch's requests to run
	emitted []bool     // by index in sent: a part of the answer has been sent
	sent    []int      // the requests of the message, as indexes of the batch's
	cancels []bool     // by index in sent: the child knows that the client has left
	tensors []stream.Tensor
	decoder *codec.Decoder
}

func newSlot(w *Worker) *slot {
	s := &slot{answers: make(chan *message, 1), timer: time.NewTimer(time.Hour),
		decoder: workers.NewDecoder(w.env.Pixels, w.env.Memory)}
	s.timer.Stop()
	return s
}

func (s *slot) free() {
	s.timer.Stop()
	for {
		select {
		case m := <-s.answers: // arrived after the batch had been given up
			m.reset()
			continue
		default:
		}
		break
	}
	s.in.free()
	s.out.free()
	s.in, s.out = nil, nil
	s.decoder.Close()
}

const (
	segmentStep = 64 << 10 // segments are multiples of segmentStep
	align       = 64       // of each tensor in a segment
	spareTimes  = 4        // factor by which a segment is too large
	spareAfter  = 256      // for so many batches is made smaller
)

func aligned(n int) int { return (n + align - 1) &^ (align - 1) }

// grown returns the size of a segment for n bytes.
func grown(n int) int { return (n + n/4 + segmentStep - 1) / segmentStep * segmentStep }

// writer puts the data of a batch where the child reads.
type writer struct {
	w  *Worker
	s  *slot
	at int // in the slot's segment
}

// put copies data to where the child reads.
func (x *writer) put(data []byte) dataLocation {
	if x.s.in == nil {
		x.s.data = append(x.s.data, data)
		at := x.s.after
		x.s.after += len(data)
		return dataLocation{-1, at, len(data)}
	}
	at := x.at
	copy(x.s.in.bytes[at:], data)
	x.at = aligned(at + len(data))
	return dataLocation{x.s.in.id, at, len(data)}
}

// allocate returns memory of n bytes to fill, read by the child.
func (x *writer) allocate(n int) ([]byte, dataLocation, error) {
	if x.s.in == nil {
		lease, err := x.w.env.Memory.Lease(n)
		if err != nil {
			return nil, dataLocation{}, err
		}
		x.s.leases = append(x.s.leases, lease)
		return lease.Bytes(), x.put(lease.Bytes()), nil
	}
	at := x.at
	x.at = aligned(at + n)
	return x.s.in.bytes[at : at+n : at+n], dataLocation{x.s.in.id, at, n}, nil
}

// wasSent releases the resources of the message.
func (s *slot) wasSent() {
	for i, l := range s.leases {
		l.Release()
		s.leases[i] = nil
	}
	s.leases = s.leases[:0]
	clear(s.data)
	s.data = s.data[:0]
}

// needs returns the bytes of the slot's segment needed by the requests lo to hi of a batch.
func (w *Worker) needs(b *batching.Batch, lo, hi int) (n int) {
	for k := range b.Inputs {
		if b.Offset(k) < 0 {
			n += aligned(len(b.Inputs[k].Data))
		}
	}
	if len(b.Inputs) > 0 {
		return n
	}
	for _, r := range b.Requests[lo:hi] {
		n += w.needsOf(r)
	}
	return n
}

// needsOf returns the bytes needed by a request of a ragged batch.
func (w *Worker) needsOf(r *stream.Request) (n int) {
	if w.isPicture(r) {
		if width, height, ok := w.pictureSize(r); ok {
			return aligned(w.target.Size(width, height))
		}
		return 0
	}
	for i := range r.Inputs {
		n += aligned(len(r.Inputs[i].Data))
	}
	return n + aligned(len(r.Payload))
}
