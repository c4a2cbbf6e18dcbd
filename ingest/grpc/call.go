package grpc

import (
	"runtime"
	"sync"

	"google.golang.org/grpc/mem"

	"millrace/ingest/inference"
	"millrace/internal/inferencepb"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
)

type call struct {
	inference.Call
	err   error      // why the message could not be read
	in    int        // bytes of the message
	head  [5]byte    // before the message
	limit *timeLimit // nil = no time limit made yet
	alloc func(n int) []byte

	// the application called without a model's name, in messages of the application's own form; nil = none
	app    *stream.Model
	forApp *inferencepb.ModelInferRequest // a message for app; Request is then empty

	turn // in a call of ModelStreamInfer
}

var calls = sync.Pool{New: func() any {
	k := new(call)
	k.alloc = k.LeaseTensor
	return k
}}

func newCall() *call { return calls.Get().(*call) }

// free releases all memory and returns the call to the pool.
func (k *call) free() {
	k.Reset()
	k.err, k.in = nil, 0
	k.app, k.forApp = nil, nil
	clear(k.results)
	k.turn = turn{results: k.results[:0]}
	calls.Put(k)
}

const (
	// maxCopied is the size of the largest output copied into the head of its message, where a copy costs less than a
	// separate part. maxCopied exceeds the size below which package mem gives buffers no reference count.
	maxCopied = 8 << 10
	// minHead is the minimum size of a head, also above the limit of package mem for reference counts.
	minHead = 4 << 10
	// maxHead is the capacity of the largest head kept for a later reply.
	maxHead = 64 << 10
	// maxPrefix is the room for the tag and length in front of a ModelInferResponse inside a
	// ModelStreamInferResponse.
	maxPrefix = 6
)

// reply is a message with the result of a request. The transport sends large outputs directly from the result's
// memory; after the write, the reply releases this memory and is reused.
//
// When a call ends early, the transport drops unwritten buffers and does not always return the buffers. The garbage
// collector then finds the reply and releases the memory.
type reply struct {
	head   []byte   // the message without large outputs
	begins int      // where in head the message begins
	cuts   []int    // where in head each large output follows
	large  [][]byte // the large outputs
	size   int
	lease  *replyMemory
	parts  replyBuffers
	sent   []byte // head from begins on
}

// replyMemory is the memory of a reply; nil = none. held does not refer to the result: the result refers to the reply,
// so the reply would never become garbage.
type replyMemory struct{ *buf.Buf }

func (h *replyMemory) release() {
	h.Release() // of none has no effect
	h.Buf = nil
}

var replies = sync.Pool{New: func() any {
	r := &reply{head: make([]byte, 0, minHead), lease: new(replyMemory)}
	r.parts.reply = r
	runtime.AddCleanup(r, (*replyMemory).release, r.lease)
	return r
}}

func (r *reply) free() {
	r.lease.release()
	clear(r.large)
	r.cuts, r.large, r.sent = r.cuts[:0], r.large[:0], nil
	if cap(r.head) > maxHead {
		r.head = make([]byte, 0, minHead)
	}
	replies.Put(r)
}

// newReply makes the message of k.Response, whose data are in the memory of result. With forStream the message is a
// ModelStreamInferResponse. newReply takes over result unless newReply fails.
func newReply(k *call, result *stream.Result, forStream bool) (*reply, error) {
	r := replies.Get().(*reply)
	head, err := oip.AppendProto(r.head[:maxPrefix], &k.Response)
	r.head = head
	if err != nil {
		r.free()
		return nil, stream.Errorf(stream.Internal, "", "the result cannot be sent: %w", err)
	}
	r.size = -maxPrefix
	for i := range k.Response.Outputs {
		data := k.Response.Outputs[i].Data
		r.head = oip.AppendProtoRaw(r.head, len(data))
		if len(data) <= maxCopied {
			r.head = append(r.head, data...)
			continue
		}
		r.cuts, r.large = append(r.cuts, len(r.head)), append(r.large, data)
		r.size += len(data)
	}
	r.size += len(r.head)
	r.begins = maxPrefix
	if forStream {
		var prefix [maxPrefix]byte
		p := oip.AppendProtoInStream(prefix[:0], r.size)
		r.begins -= copy(r.head[maxPrefix-len(p):], p)
		r.size += len(p)
	}
	if len(r.large) == 0 && result != nil { // all outputs were copied
		result.Recycle()
	} else if result != nil {
		r.lease.Buf, result.Lease = result.Lease, nil
		result.Recycle()
	}
	return r, nil
}

// buffers returns the message in the transport's form. The transport returns written buffers to parts.Put.
func (r *reply) buffers() mem.BufferSlice {
	r.parts.unreleased.Store(int32(1 + len(r.large)))
	r.sent = r.head[r.begins:]
	whole := mem.NewBuffer(&r.sent, &r.parts)
	if len(r.large) == 0 {
		return mem.BufferSlice{whole}
	}
	out := make(mem.BufferSlice, 0, 2*len(r.large)+1)
	from := 0
	for i, cut := range r.cuts {
		cut -= r.begins
		out = append(out, whole.Slice(from, cut), mem.NewBuffer(&r.large[i], &r.parts))
		from = cut
	}
	if from < len(r.sent) {
		out = append(out, whole.Slice(from, len(r.sent)))
	}
	whole.Free() // the slices of whole hold references
	return out
}
