package grpc

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/metadata"

	"millrace/internal/accept"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/stream/buf"
)

// Bounds of what calls hold beside their messages.
const (
	// callSize is what a call is charged for itself: its goroutine, its place in the transport and
	// metadata of up to smallMetadata.
	callSize      = 16 << 10
	smallMetadata = 4 << 10
	// maxOpenMetadata is the most that the metadata of a call which needs no credentials may take.
	maxOpenMetadata = 16 << 10
	// fieldSize is what an entry of metadata takes beside its name and value.
	fieldSize = 128
	// maxWaiting is how many calls of one client that need no credentials may wait for their
	// message, and maxAllWaiting how many of all clients: above that, each client may have one.
	maxWaiting    = 128
	maxAllWaiting = 4096
)

// metadataSize returns how much memory metadata take.
func metadataSize(md metadata.MD) int {
	n := 0
	for name, values := range md {
		for _, v := range values {
			n += fieldSize + len(name) + len(v)
		}
	}
	return n
}

// metadataKey is the key under which the context of a call has the size of its metadata if that is above smallMetadata.
type metadataKey struct{}

// withSize returns ctx with the size of a call's metadata, or an error if a call that needs no credentials may not have as many.
func withSize(ctx context.Context, needed role.Role, md metadata.MD) (context.Context, error) {
	switch n := metadataSize(md); {
	case n > maxOpenMetadata && needed == role.Open:
		return nil, stream.Errorf(stream.TooLarge, "metadata", "take %d bytes, with %d for each entry: a call of a method that needs no credentials may have %d", n, fieldSize, maxOpenMetadata)
	case n > smallMetadata:
		return context.WithValue(ctx, metadataKey{}, n), nil
	}
	return ctx, nil
}

// waiting counts calls that need no credentials and whose message has not come, of all clients.
type waiting struct{ all atomic.Int64 }

// add counts a call of a client, unless there are too many.
func (w *waiting) add(of *accept.Use) error {
	mine, all := of.Waiting.Add(1), w.all.Add(1)
	switch {
	case mine > maxWaiting:
		w.remove(of)
		return stream.Errorf(stream.FlowControl, "", "%d calls of this address wait for their message: send it with the call", maxWaiting)
	case mine > 1 && all > maxAllWaiting:
		w.remove(of)
		return stream.Errorf(stream.FlowControl, "", "%d calls of all clients wait for their message, and one of this address: send it with the call", maxAllWaiting)
	}
	return nil
}

func (w *waiting) remove(of *accept.Use) {
	of.Waiting.Add(-1)
	w.all.Add(-1)
}

// begun is what a call holds beside its messages, until end.
type begun struct {
	*service
	use     *accept.Use // nil = its connection is not of package accept
	charged int64       // to the budget and the client's share of it
	waits   bool        // it is counted as waiting
	open    bool        // it needs no credentials
}

// begin takes what a call holds beside its messages. Calls that need no credentials, which tell whether the server
// is well, need nothing of the budget, and are bounded by their number. streams says that the client may send any number of
// messages: when the server reads none, since the client reads no answers, the transport keeps what fits into the window.
func (s *service) begin(ctx context.Context, method string, streams bool) (b begun, err error) {
	b = begun{service: s, use: accept.UseOf(connOf(ctx)), open: Roles[method] == role.Open}
	if b.open {
		if b.use == nil {
			return b, nil
		}
		err = s.waiting.add(b.use)
		b.waits = err == nil
		return b, err
	}
	n := int64(callSize)
	if streams {
		n += streamWindow
	}
	if size, ok := ctx.Value(metadataKey{}).(int); ok {
		n += int64(size)
	}
	if err = s.gate.Memory().ChargeTo(n, b.share()); err == nil {
		b.charged = n
	} else if Roles[method] == role.Manage { // its message, which names the target, is not read
		s.audit(ctx, method, "", err)
	}
	return b, err
}

// share returns in what the memory of the client counts.
func (b *begun) share() *buf.Share {
	if b.use == nil {
		return nil
	}
	return &b.use.Memory
}

// arrived says that the call's message has come, or its end.
func (b *begun) arrived() {
	if b.waits {
		b.waits = false
		b.waiting.remove(b.use)
	}
}

// answered says that the call was answered. That makes the connection of a call that needs no credentials one that has sent a
// request where no call needs them: the connections of other calls are it earlier.
func (b *begun) answered(ctx context.Context) {
	switch {
	case !b.open:
	case b.gate.Required():
		accept.Heard(connOf(ctx))
	default:
		spoke(ctx)
	}
}

// end returns what the call holds.
func (b *begun) end() {
	b.arrived()
	if b.charged > 0 {
		b.gate.Memory().RefundFrom(b.charged, b.share())
	}
}
