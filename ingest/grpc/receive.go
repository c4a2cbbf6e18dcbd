package grpc

import (
	"bytes"
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

	"millrace/internal/oip"
)

// Bounds of a message that arrives.
const (
	// A message may take messageGrace, and a second for each minRate bytes, as a body of REST.
	messageGrace = 15 * time.Second
	minRate      = 32 << 10
	// streamWindow is what a client may send of a call before the server reads. A smaller one
	// would make streams of distant clients slow.
	streamWindow = 256 << 10
	// connWindow is the same of a connection, whose calls each have their own window.
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
		handler := to.Methods[i].Handler
		to.Methods[i].Handler = func(srv any, ctx context.Context, _ func(any) error, in grpc.UnaryServerInterceptor) (any, error) {
			return handler(srv, ctx, func(m any) error { return r.svc.receive(ctx, m, true) }, in)
		}
	}
	r.Server.RegisterService(&to, impl)
}

// receiving is a stream that receives by service.receive.
type receiving struct {
	grpc.ServerStream
	svc  *service
	only bool // the client sends one message
}

// RecvMsg implements grpc.ServerStream.
func (r receiving) RecvMsg(m any) error { return r.svc.receive(r.Context(), m, r.only) }

// receive reads a message into m. only says that it must be the only one of the call. A message of
// a *call that cannot be read is no error here: the call has the error, so that it is counted and
// answered as others are.
func (s *service) receive(ctx context.Context, m any, only bool) error {
	in, ok := grpc.ServerTransportStreamFromContext(ctx).(incoming)
	if !ok {
		return status.Error(codes.Internal, "the transport's stream cannot be read")
	}
	k, isCall := m.(*call)
	if !isCall {
		k = newCall()
		defer k.free()
	}
	k.Use(s.backend.Memory())
	body, err := s.readMessage(in, k, only)
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
	return nil
}

// readMessage reads a message into the body of k. When there is no memory for it, k.err says so.
func (s *service) readMessage(in incoming, k *call, only bool) (body []byte, err error) {
	if err := in.ReadMessageHeader(k.head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(k.head[1:]))
	if n > s.maxMessage {
		return nil, status.Errorf(codes.ResourceExhausted, "received message larger than max (%d vs. %d): send less, or raise limits.max_message", n, s.maxMessage)
	}
	k.limitTime(in, n)
	defer func() {
		if !k.endLimit() {
			err = late(n).Err()
		}
	}()
	switch k.head[0] {
	case 0:
		if body, k.err = k.LeaseBody(n); k.err != nil {
			return nil, s.skip(in, k, n, only)
		}
		err = readInto(in, body)
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

// messageTime returns the time that a message of n bytes may take.
func messageTime(n int) time.Duration { return messageGrace + time.Duration(n/minRate)*time.Second }

// timeLimit ends a call when the time of its message is over. A call uses its own again, which
// costs less than a new timer.
type timeLimit struct {
	timer *time.Timer
	in    incoming
	n     int
}

// pass ends what waits for the client by the status of its call.
func (l *timeLimit) pass() { _ = l.in.WriteStatus(late(l.n)) }

// limitTime limits the time of a message of n bytes, until endLimit.
func (k *call) limitTime(in incoming, n int) {
	if k.limit == nil {
		k.limit = &timeLimit{in: in, n: n}
		k.limit.timer = time.AfterFunc(messageTime(n), k.limit.pass)
		return
	}
	k.limit.in, k.limit.n = in, n
	k.limit.timer.Reset(messageTime(n))
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

// late is the status of a call whose message has taken longer.
func late(n int) *status.Status {
	return status.Newf(codes.DeadlineExceeded, "the message of %d bytes was not complete after %v: send it faster, or in parts", n, messageTime(n))
}

// readInto reads as many bytes of a message as b has.
func readInto(in incoming, b []byte) error {
	for len(b) > 0 {
		data, err := in.Read(min(len(b), maxPiece))
		if err != nil {
			return inMessage(err)
		}
		b = b[data.CopyTo(b):]
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

// skip reads a message of n bytes for which there is no memory: the name of its model, and the
// rest if another may follow.
func (s *service) skip(in incoming, k *call, n int, only bool) error {
	for first := true; n > 0 && (first || !only); first = false {
		piece := maxPiece
		if first {
			piece = maxName
		}
		data, err := in.Read(min(n, piece))
		if err != nil {
			return inMessage(err)
		}
		n -= data.Len()
		if first {
			s.readName(k, data.Materialize())
		}
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
		return nil, status.Error(codes.Internal, "the message is compressed, and the call's grpc-encoding does not say how")
	}
	packed, err := s.backend.Memory().Lease(n)
	if k.err = err; err != nil {
		return nil, s.skip(in, k, n, only)
	}
	defer packed.Release()
	if err := readInto(in, packed.Bytes()); err != nil {
		return nil, err
	}
	from, err := c.Decompress(bytes.NewReader(packed.Bytes()))
	if err != nil {
		return nil, status.Errorf(codes.Internal, "the message cannot be decompressed: %v", err)
	}
	var body []byte
	for at := 0; ; {
		if at == len(body) {
			grown, err := k.LeaseBody(min(max(2*at, firstRoom), s.maxMessage+1))
			if k.err = err; err != nil {
				s.readName(k, body[:min(at, maxName)])
				return nil, nil
			}
			copy(grown, body)
			body = grown
		}
		got, err := from.Read(body[at:])
		switch at += got; {
		case at > s.maxMessage:
			return nil, status.Errorf(codes.ResourceExhausted, "received message after decompression larger than max %d: send less, or raise limits.max_message", s.maxMessage)
		case errors.Is(err, io.EOF):
			k.ResizeBody(at)
			return body[:at], nil
		case err != nil:
			return nil, status.Errorf(codes.Internal, "the message cannot be decompressed: %v", err)
		}
	}
}
