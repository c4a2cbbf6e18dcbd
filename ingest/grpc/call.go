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

// call is one inference request.
type call struct {
	inference.Call
	err   error      // why the message could not be read
	in    int        // bytes of the message
	head  [5]byte    // before the message
	limit *timeLimit // nil = it had none yet
	alloc func(n int) []byte

	app    *stream.Model                  // that is asked without the name of a model, in messages of its own form; nil = none
	forApp *inferencepb.ModelInferRequest // the message, if it is one for app; Request is empty then

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
	// maxCopied is the largest output that is copied to the other parts of its message, which
	// costs less than a part of its own. It is above the size below which package mem gives
	// buffers no count of references.
	maxCopied = 8 << 10
	// minHead is the least room for those parts, above that size too.
	minHead = 4 << 10
	// maxHead is the most room that a reply keeps for a later one.
	maxHead = 64 << 10
	// maxPrefix is the room for what is before a ModelInferResponse in a
	// ModelStreamInferResponse: a tag and a length.
	maxPrefix = 6
)

// reply is a message with the result of a request. Its large outputs are sent from the
// result's memory, which is released when the transport has written it. It is used again
// then.
//
// The transport drops what it has not written of a call that ends early, and does not always
// return it. The memory of such a reply is released when the garbage collector finds it.
type reply struct {
	head   []byte   // the message without its large outputs
	begins int      // where in head the message begins
	cuts   []int    // where in head each large output follows
	large  [][]byte // the large outputs
	size   int
	lease  *held
	parts  returned
	sent   []byte // head from begins on
}

// held is the memory of a reply, nil = none. It is not the result, from which the reply can be
// reached, so that no reply would be garbage.
type held struct{ *buf.Buf }

func (h *held) release() {
	h.Release() // of none has no effect
	h.Buf = nil
}

var replies = sync.Pool{New: func() any {
	r := &reply{head: make([]byte, 0, minHead), lease: new(held)}
	r.parts.reply = r
	runtime.AddCleanup(r, (*held).release, r.lease)
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

// newReply makes the message of k.Response, whose data are in the memory of result: for
// a stream as a ModelStreamInferResponse. It takes over result unless it fails.
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
	if len(r.large) == 0 && result != nil { // all of it was copied
		result.Release()
	} else if result != nil {
		r.lease.Buf, result.Lease = result.Lease, nil
		result.Release()
	}
	return r, nil
}

// buffers returns the message as the transport takes it. Buffers that it has done with come
// back to parts.Put.
func (r *reply) buffers() mem.BufferSlice {
	r.parts.left.Store(int32(1 + len(r.large)))
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
	whole.Free() // its slices hold it
	return out
}
