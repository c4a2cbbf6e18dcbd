package grpc

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"millrace/internal/httpd"
	"millrace/stream"
)

// exportedOnly makes adapters that begin to serve use readExported for all messages. Tests set exportedOnly.
var exportedOnly atomic.Bool

// incoming returns the transport's stream of a call. Without the methods of the interface, incoming logs once that
// messages are read by readExported.
func (s *service) incoming(ctx context.Context) (incoming, bool) {
	if s.exported.Load() {
		return nil, false
	}
	in, ok := grpc.ServerTransportStreamFromContext(ctx).(incoming)
	if !ok && !s.exported.Swap(true) {
		s.Log.Warn("this version of grpc-go does not let the server read a call's messages in parts: " +
			"each call reserves limits.max_message of memory.budget while the call waits for a message")
	}
	return in, ok
}

// endableKey is the context key for the function that ends a call.
type endableKey struct{}

// endableContext is the context of a call that the server can end while package grpc waits for the client.
type endableContext struct {
	context.Context
	end context.CancelCauseFunc
}

// Err implements context.Context. Package grpc makes the status of an ended call from Err.
func (e *endableContext) Err() error {
	if errors.Is(context.Cause(e.Context), errLate.Err()) {
		return context.DeadlineExceeded
	}
	return e.Context.Err()
}

// Value implements context.Context.
func (e *endableContext) Value(key any) any {
	if key == (endableKey{}) {
		return e
	}
	return e.Context.Value(key)
}

// endable returns the context of a new call. Calls read as incoming need no other context: WriteStatus ends the call.
func (s *service) endable(ctx context.Context) context.Context {
	if !s.exported.Load() {
		return ctx
	}
	e := new(endableContext)
	e.Context, e.end = context.WithCancelCause(ctx) // the transport ends ctx
	return e
}

// endCall ends a call whose context is endable.
func endCall(ctx context.Context, why error) {
	if e, ok := ctx.Value(endableKey{}).(*endableContext); ok {
		e.end(why)
	}
}

// readExported reads a message into the body of k by recv, which is RecvMsg of package grpc. RecvMsg keeps the whole
// message outside the budget, and nobody learns its size before its end. While readExported waits for a message, the
// call reserves the size of the largest message, and a unary call has the time of the largest message. When there is
// no memory, k.err says so, or, in a call with more messages, err.
func (s *service) readExported(ctx context.Context, recv func(any) error, k *call, only bool) ([]byte, error) {
	if k.err != nil && only {
		return nil, nil
	}
	memory, share, largest := s.gate.Memory(), memoryOf(ctx), int64(s.MaxMessage)
	if err := memory.ChargeTo(largest, share); err != nil {
		if only {
			k.err = err
			return nil, nil
		}
		return nil, statusError(err)
	}
	defer memory.RefundFrom(largest, share)
	if only {
		limit := time.AfterFunc(max(s.grace, httpd.ArrivalTime(s.MaxMessage)), func() { endCall(ctx, errLate.Err()) })
		defer limit.Stop()
	}
	m := &exportedMessage{service: s, call: k}
	err := recv(m)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errLate.Err()):
		return nil, errLate.Err()
	case status.Code(err) == codes.ResourceExhausted:
		return nil, status.Errorf(codes.ResourceExhausted, "%s: send less, or raise limits.max_message",
			status.Convert(err).Message())
	case err != nil:
		return nil, err
	}
	k.in = len(m.body)
	return m.body, nil
}

// exportedMessage receives the bytes of a message from codec.Unmarshal.
type exportedMessage struct {
	*service
	call *call
	body []byte
}

// copyFrom copies the message into memory leased by the call. Without memory, the call's err says so, and the call has
// the name of its model.
func (m *exportedMessage) copyFrom(data mem.BufferSlice) error {
	if m.body != nil {
		return stream.Errorf(stream.InvalidArgument, "", "the call has more than one message")
	}
	from, n := data.Reader(), data.Len()
	defer from.Close()
	m.body = []byte{}
	for at := 0; at < n && m.call.err == nil; at = len(m.body) {
		larger, err := m.call.ReceiveBody(n, at)
		if err != nil {
			m.call.err = err
			start := make([]byte, min(n, maxName))
			data.CopyTo(start)
			m.readName(m.call, start)
			return nil
		}
		m.body = larger
		if _, err := io.ReadFull(from, larger[at:]); err != nil {
			return err
		}
	}
	return nil
}
