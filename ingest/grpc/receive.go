package grpc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"millrace/internal/httpd"
	"millrace/internal/inferencepb"
	"millrace/internal/oip"
)

// Bounds of a message that arrives.
const (
	// refusedGrace is the time in which the only message of a refused call must begin, in place of
	// httpd.ArrivalGrace. The message names the model for which the call is counted.
	refusedGrace = 100 * time.Millisecond
	// streamWindow is what a client may send of a call before the server reads. A smaller one
	// would make streams of distant clients slow.
	streamWindow = 256 << 10
	// connWindow is the same of a connection, whose calls each have their own window. It bounds no
	// memory: package grpc gives it back as bytes arrive. Calls are charged for their windows, see begin.
	connWindow = 16 << 20
	// maxPiece is how much of a message the transport keeps until it is copied. A smaller one
	// would make distant clients wait more often.
	maxPiece = 1 << 20
	// maxName is how much is read of a refused message, for the name of its model.
	maxName = 512
	// firstRoom is the first room for what is decompressed.
	firstRoom = 64 << 10
)

// incoming is the transport's stream of a call. RecvMsg of package grpc keeps a message until it
// is complete, in memory that nobody could refuse; here its memory is leased before it is read.
// Package grpc does not export these methods: without them the service uses readExported.
type incoming interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
	WriteStatus(*status.Status) error
}

// registrar registers services whose methods receive by service.receive.
type registrar struct {
	*grpc.Server
	svc *service
}

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(d *grpc.ServiceDesc, impl any) {
	to := *d
	to.Methods = append([]grpc.MethodDesc(nil), d.Methods...)
	for i := range to.Methods {
		handler, method := to.Methods[i].Handler, "/"+d.ServiceName+"/"+to.Methods[i].MethodName
		to.Methods[i].Handler = func(srv any, ctx context.Context, recv func(any) error,
			in grpc.UnaryServerInterceptor) (any, error) {
			b, refused := r.svc.begin(ctx, method, false)
			defer b.end()
			reply, err := handler(srv, ctx, func(m any) error {
				if k, ok := m.(*call); ok {
					k.err = refused
				} else if refused != nil {
					return statusError(refused)
				}
				defer b.arrived()
				return r.svc.receive(ctx, recv, m, true)
			}, in)
			if err == nil {
				b.answered(ctx)
			}
			return reply, err
		}
	}
	r.Server.RegisterService(&to, impl)
}

// receiving is a stream that receives by service.receive.
type receiving struct {
	grpc.ServerStream
	charge *callCharge
	only   bool // the client sends one message
}

// SendMsg implements grpc.ServerStream.
func (r receiving) SendMsg(m any) error {
	err := r.ServerStream.SendMsg(m)
	if err == nil {
		r.charge.answered(r.Context())
	}
	return err
}

// RecvMsg implements grpc.ServerStream.
func (r receiving) RecvMsg(m any) error {
	defer r.charge.arrived()
	return r.charge.receive(r.Context(), r.ServerStream.RecvMsg, m, r.only)
}

// receive reads a message into m. only: a second message in the call is an error. For a *call, an unreadable message
// is no error of receive: the call keeps the error, and is counted and answered like every call. receive calls recv,
// which is RecvMsg of package grpc, only if the transport's stream cannot be read, see readExported.
func (s *service) receive(ctx context.Context, recv func(any) error, m any, only bool) error {
	k, isCall := m.(*call)
	if !isCall {
		k = newCall()
		defer k.free()
	}
	k.Use(s.gate.Memory(), memoryOf(ctx))
	var body []byte
	var err error
	if in, ok := s.incoming(ctx); ok {
		body, err = s.readMessage(in, k, only)
	} else {
		body, err = s.readExported(ctx, recv, k, only)
	}
	if isCall && only && err == nil && k.err == nil {
		if k.err = client(ctx).Err(); k.err != nil {
			s.readName(k, body[:min(len(body), maxName)])
		}
	}
	switch {
	case err == io.EOF && !only:
		return err
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return status.Error(codes.Internal, "the call ended before its message was complete")
	case err != nil:
		if _, ok := status.FromError(err); ok {
			return err
		}
		return status.Error(codes.Unavailable, err.Error())
	case isCall && k.err == nil && k.app != nil && isForApp(body, k.app.Name):
		k.forApp = new(inferencepb.ModelInferRequest)
		m = k.forApp
	case isCall && k.err == nil:
		k.err = oip.DecodeProto(&k.Request, body, k.alloc, s.limits)
		return nil
	case isCall:
		return nil
	case k.err != nil:
		return statusError(k.err)
	}
	if err := encoding.GetCodecV2(proto.Name).Unmarshal(mem.BufferSlice{mem.SliceBuffer(body)}, m); err != nil {
		return status.Errorf(codes.Internal, "the message cannot be read: %v", err)
	}
	if !only || isCall {
		return nil
	}
	if err := client(ctx).Err(); err != nil {
		if method, _ := grpc.Method(ctx); manages(method, m) {
			s.audit(ctx, method, targetOf(m), err)
		}
		return statusError(err)
	}
	return nil
}

// readMessage reads a message into the body of k. When there is no memory for it, k.err says so.
func (s *service) readMessage(in incoming, k *call, only bool) (body []byte, err error) {
	limited, refused := only, k.err != nil // in a call with more messages, a client may think before each of them
	switch {
	case only && refused:
		k.limitTime(in, 0, refusedGrace)
	case only:
		k.limitTime(in, 0, cmp.Or(s.grace, httpd.ArrivalGrace))
	}
	defer func() {
		if limited && !k.endLimit() {
			body, err = nil, errLate.Err()
		}
		if refused {
			body, err = nil, nil
		}
	}()
	if err := in.ReadMessageHeader(k.head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(k.head[1:]))
	if n > s.MaxMessage {
		return nil, status.Errorf(codes.ResourceExhausted,
			"received message larger than max (%d vs. %d): send less, or raise limits.max_message", n, s.MaxMessage)
	}
	switch {
	case refused:
		return nil, s.skip(in, k, 0, n, only)
	case !only:
		k.limitTime(in, n, httpd.ArrivalTime(min(n, maxPiece)))
		limited = true
	case n >= httpd.ArrivalRate:
		if !k.limit.timer.Stop() {
			return nil, errLate.Err()
		}
		k.limitTime(in, n, httpd.ArrivalTime(min(n, maxPiece)))
	}
	switch k.head[0] {
	case 0:
		body, err = s.readPlain(in, k, n, only)
	case 1:
		body, err = s.readCompressed(in, k, n, only)
	default:
		err = status.Errorf(codes.Internal, "the message has the unknown format %d", k.head[0])
	}
	if err != nil || k.err != nil {
		return nil, err
	}
	k.in = len(body)
	if !only {
		return body, nil
	}
	switch err := in.ReadMessageHeader(k.head[:]); err {
	case io.EOF:
		return body, nil
	case nil:
		return nil, status.Error(codes.Internal, "the call has more than one message")
	default:
		return nil, err
	}
}

// timeLimit ends a call when the time of its message is over. A call uses its own again, which
// costs less than a new timer.
type timeLimit struct {
	timer *time.Timer
	in    incoming
	why   *status.Status // of a call that is refused already; nil = errLate
	began time.Time      // of a message that is read in several pieces
}

// pass ends what waits for the client by the status of its call.
func (l *timeLimit) pass() { _ = l.in.WriteStatus(cmp.Or(l.why, errLate)) }

// limitTime limits the time of a message of n bytes, until endLimit: to d for its first piece, and
// then, by extend, to that of what has arrived and the next piece.
func (k *call) limitTime(in incoming, n int, d time.Duration) {
	var why *status.Status
	if k.err != nil {
		why = status.Convert(statusError(k.err))
	}
	if k.limit == nil {
		k.limit = &timeLimit{in: in, why: why}
		k.limit.timer = time.AfterFunc(d, k.limit.pass)
	} else {
		k.limit.in, k.limit.why = in, why
		k.limit.timer.Reset(d)
	}
	if n > maxPiece {
		k.limit.began = time.Now()
	}
}

// extend allows the time of the first n bytes of the message. It reports false when the time was
// over already.
func (k *call) extend(n int) bool {
	if n <= maxPiece {
		return true
	}
	if !k.limit.timer.Stop() {
		return false
	}
	k.limit.timer.Reset(httpd.ArrivalTime(n) - time.Since(k.limit.began))
	return true
}

// endLimit reports whether the message was in time. If not, pass may still run, and the limit is
// not used again.
func (k *call) endLimit() bool {
	if !k.limit.timer.Stop() {
		k.limit = nil
		return false
	}
	k.limit.in = nil
	return true
}

// errLate is the status of a call whose message is too slow.
var errLate = status.Newf(codes.DeadlineExceeded,
	"the message arrives too slowly: send it within %v and a second for each %d bytes, or in parts",
	httpd.ArrivalGrace, httpd.ArrivalRate)

// readPlain reads a message of n bytes into the body of k.
func (s *service) readPlain(in incoming, k *call, n int, only bool) (body []byte, err error) {
	for at := 0; at < n; at = len(body) {
		var larger []byte
		if larger, k.err = k.ReceiveBody(n, at); k.err != nil {
			s.readName(k, body[:min(at, maxName)])
			return nil, s.skip(in, k, at, n, only)
		}
		body = larger
		if err := k.readInto(in, body, at); err != nil {
			return nil, err
		}
	}
	return body, nil
}

// readInto reads the bytes of a message that follow its first at into b.
func (k *call) readInto(in incoming, b []byte, at int) error {
	for at < len(b) {
		piece := min(len(b)-at, maxPiece)
		if !k.extend(at + piece) {
			return errLate.Err()
		}
		data, err := in.Read(piece)
		if err != nil {
			return inMessage(err)
		}
		at += data.CopyTo(b[at:])
		data.Free()
	}
	return nil
}

// inMessage is err of a read in a message, where no call may end.
func inMessage(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// skip reads the rest of a message of n bytes for which there is no memory, after its first at: the
// name of its model, and what follows if another message may.
func (s *service) skip(in incoming, k *call, at, n int, only bool) error {
	for at < n && (at == 0 || !only) {
		piece := min(n-at, maxPiece)
		if at == 0 {
			piece = min(n, maxName)
		}
		if !k.extend(at + piece) {
			return errLate.Err()
		}
		data, err := in.Read(piece)
		if err != nil {
			return inMessage(err)
		}
		if at == 0 {
			s.readName(k, data.Materialize())
		}
		at += data.Len()
		data.Free()
	}
	return nil
}

// readName reads the model's name from the beginning of a message that is refused.
func (s *service) readName(k *call, data []byte) {
	_ = oip.DecodeProto(&k.Request, data, func(int) []byte { return nil }, s.limits)
}

// readCompressed reads a message that has n bytes before it is decompressed.
func (s *service) readCompressed(in incoming, k *call, n int, only bool) ([]byte, error) {
	c := encoding.GetCompressor(in.RecvCompress())
	if c == nil {
		return nil, status.Error(codes.Internal,
			"the message is compressed, and the call's grpc-encoding does not say how")
	}
	body, err := s.readPlain(in, k, n, only)
	if err != nil || k.err != nil {
		return nil, err
	}
	packed := k.TakeBody()
	defer packed.Release()
	from, err := c.Decompress(bytes.NewReader(body))
	if err != nil {
		return nil, status.Errorf(codes.Internal, "the message cannot be decompressed: %v", err)
	}
	body = nil
	for at := 0; ; {
		if at == len(body) {
			grown, err := k.LeaseBody(min(max(2*at, firstRoom), s.MaxMessage+1))
			if k.err = err; err != nil {
				s.readName(k, body[:min(at, maxName)])
				return nil, nil
			}
			copy(grown, body)
			body = grown
		}
		got, err := from.Read(body[at:])
		switch at += got; {
		case at > s.MaxMessage:
			return nil, status.Errorf(codes.ResourceExhausted,
				"received message after decompression larger than max %d: send less, or raise limits.max_message",
				s.MaxMessage)
		case errors.Is(err, io.EOF):
			k.ResizeBody(at)
			return body[:at], nil
		case err != nil:
			return nil, status.Errorf(codes.Internal, "the message cannot be decompressed: %v", err)
		}
	}
}
