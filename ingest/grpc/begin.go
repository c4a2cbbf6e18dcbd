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

// Limits of a call's memory besides its messages.
const (
	// callSize is the charge for a call: its goroutine, its state in the transport and metadata up to smallMetadata.
	callSize      = 16 << 10
	smallMetadata = 4 << 10
	// maxOpenMetadata is the maximum size of the metadata of a call without credentials.
	maxOpenMetadata = 16 << 10
	// fieldSize is the overhead of a metadata entry besides its name and value.
	fieldSize = 128
	// maxWaiting limits how many calls of one client to methods without credentials may wait for their message.
	// maxAllWaiting is the limit for all clients; above maxAllWaiting, each client may have one call.
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

// metadataKey is the context key for the size of a call's metadata, set only above smallMetadata.
type metadataKey struct{}

// withSize returns ctx with the size of a call's metadata, or an error if the metadata of a call without credentials
// are too large.
func withSize(ctx context.Context, needed role.Role, md metadata.MD) (context.Context, error) {
	switch n := metadataSize(md); {
	case n > maxOpenMetadata && needed == role.Open:
		return nil, stream.Errorf(stream.TooLarge, "metadata",
			"take %d bytes, with %d for each entry: a call of a method that needs no credentials may have %d", n,
			fieldSize, maxOpenMetadata)
	case n > smallMetadata:
		return context.WithValue(ctx, metadataKey{}, n), nil
	}
	return ctx, nil
}

// waiting counts the calls of all clients to methods without credentials whose message has not arrived.
type waiting struct{ all atomic.Int64 }

// add counts a call of a client, or fails at the limit.
func (w *waiting) add(of *accept.Use) error {
	mine, all := of.Waiting.Add(1), w.all.Add(1)
	switch {
	case mine > maxWaiting:
		w.remove(of)
		return stream.Errorf(stream.FlowControl, "",
			"%d calls of this address wait for their message: send it with the call", maxWaiting)
	case mine > 1 && all > maxAllWaiting:
		w.remove(of)
		return stream.Errorf(stream.FlowControl, "",
			"%d calls of all clients wait for their message, and one of this address: send it with the call",
			maxAllWaiting)
	}
	return nil
}

func (w *waiting) remove(of *accept.Use) {
	of.Waiting.Add(-1)
	w.all.Add(-1)
}

// callCharge holds the resources of a call besides its messages, until end.
type callCharge struct {
	*service
	use     *accept.Use // nil = the connection is not from package accept
	charged int64       // charged to the budget and to the client's share
	waits   bool        // counted in service.waiting
	open    bool        // the method needs no credentials
}

// begin charges a call for its memory besides messages. Methods without credentials, used for health checks, need no
// budget; their number is limited instead. streams means that the client may send any number of messages. If the
// client reads no answers, the server reads no messages, and the transport keeps a full window of messages.
func (s *service) begin(ctx context.Context, method string, streams bool) (b callCharge, err error) {
	b = callCharge{service: s, use: accept.UseOf(connOf(ctx)), open: Roles[method] == role.Open}
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
	} else if Roles[method] == role.Manage { // the message, with the target's name, stays unread
		s.audit(ctx, method, "", err)
	}
	return b, err
}

// share returns the client's share of the budget.
func (b *callCharge) share() *buf.ClientShare {
	if b.use == nil {
		return nil
	}
	return &b.use.Memory
}

// arrived records that the call's message or the end of the call has arrived.
func (b *callCharge) arrived() {
	if b.waits {
		b.waits = false
		b.waiting.remove(b.use)
	}
}

// answered records that the call was answered. A call to a method without credentials now marks its connection as
// having sent a request, if no call needs credentials. The connections of other calls are marked earlier.
func (b *callCharge) answered(ctx context.Context) {
	switch {
	case !b.open:
	case b.gate.Required():
		accept.MarkActive(connOf(ctx))
	default:
		markRequestSent(ctx)
	}
}

// end frees the call's resources.
func (b *callCharge) end() {
	b.arrived()
	if b.charged > 0 {
		b.gate.Memory().RefundFrom(b.charged, b.share())
	}
}
