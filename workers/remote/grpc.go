package remote

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"millrace/internal/inferencepb"
	"millrace/internal/oip"
	"millrace/stream"
)

// viaGRPC speaks the protocol's gRPC form.
type viaGRPC struct {
	l    *link
	conn *grpc.ClientConn
	api  inferencepb.GRPCInferenceServiceClient
}

var _ client = (*viaGRPC)(nil)

func newGRPC(l *link, at address) (client, error) {
	creds := insecure.NewCredentials()
	if at.encrypted() {
		cfg, err := l.tls()
		if err != nil {
			return nil, err
		}
		cfg.ServerName, _, _ = net.SplitHostPort(at.host)
		cfg.NextProtos = []string{"h2"}
		creds = credentials.NewTLS(cfg)
	}
	most := int(min(l.set.MaxMessage+maxJSON, math.MaxInt32))
	conn, err := grpc.NewClient("passthrough:///"+at.host,
		grpc.WithTransportCredentials(creds), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			return l.dial(ctx, "tcp", to)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: firstWait, Multiplier: 1.6,
			Jitter: 0.2, MaxDelay: 2 * time.Second}, MinConnectTimeout: questionLimit}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(most), grpc.MaxCallSendMsgSize(most)))
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "upstream.address", "%w", err)
	}
	return &viaGRPC{l, conn, inferencepb.NewGRPCInferenceServiceClient(conn)}, nil
}

func (c *viaGRPC) close() { _ = c.conn.Close() }

// authorized adds the token to a call.
func (c *viaGRPC) authorized(ctx context.Context) (context.Context, error) {
	token, err := c.l.token()
	if err == nil && token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	return ctx, err
}

// failed returns the error of a call.
func (c *viaGRPC) failed(ctx context.Context, err error) error {
	st, _ := status.FromError(err)
	switch {
	case err == nil || ctx.Err() != nil:
	case st.Code() == codes.Unavailable && c.conn.GetState() != connectivity.Ready:
		return unreachable(connectionError(st.Message()))
	case st.Code() == codes.Unavailable && brokenTransport(st.Message()):
		return unreachable(connectionError(st.Message()))
	case st.Code() == codes.ResourceExhausted && strings.Contains(st.Message(), "larger than max"):
		return stream.Errorf(stream.TooLarge, c.l.names.section+".max_message",
			"allows %d bytes, and a message has more, or is too large for the other server: %s", c.l.set.MaxMessage,
			st.Message())
	}
	return grpcError(ctx, err)
}

// connectionError is gRPC's text about a connection.
type connectionError string

// Error returns the text, with the remedy if known.
func (e connectionError) Error() string {
	switch text := string(e); {
	case strings.Contains(text, "x509: certificate signed by unknown authority"):
		return text + ": name the authority's PEM file by upstream.ca"
	case strings.Contains(text, "error reading server preface"):
		return text + ": the port may speak TLS, for which the address is grpcs:// or https://"
	}
	return string(e)
}

// brokenTransport reports whether gRPC's text is about a broken connection that gRPC has replaced since.
func brokenTransport(text string) bool {
	for _, start := range []string{"error reading from server", "connection error", "the connection is draining",
		"transport is closing", "closing transport", "keepalive ping"} {
		if strings.HasPrefix(text, start) {
			return true
		}
	}
	return false
}

func (c *viaGRPC) ready(ctx context.Context) error {
	of := ctx
	ctx, err := c.authorized(ctx)
	if err != nil {
		return err
	}
	got, err := c.api.ModelReady(ctx, &inferencepb.ModelReadyRequest{Name: c.l.model, Version: c.l.set.Version})
	if err != nil {
		c.conn.ResetConnectBackoff()
		return c.failed(of, err)
	}
	if !got.GetReady() {
		return &upstreamError{stream.Unavailable, "the model is not ready"}
	}
	return nil
}

func (c *viaGRPC) describe(ctx context.Context) (*description, error) {
	of := ctx
	ctx, err := c.authorized(ctx)
	if err != nil {
		return nil, err
	}
	meta, err := c.api.ModelMetadata(ctx, &inferencepb.ModelMetadataRequest{Name: c.l.model, Version: c.l.set.Version})
	if err != nil {
		return nil, c.failed(of, err)
	}
	d := new(description)
	if d.inputs, err = specs("inputs", tensorMetadata(meta.Inputs)); err != nil {
		return nil, err
	}
	if d.outputs, err = specs("outputs", tensorMetadata(meta.Outputs)); err != nil {
		return nil, err
	}
	got, err := c.api.ModelConfig(ctx, &inferencepb.ModelConfigRequest{Name: c.l.model, Version: c.l.set.Version})
	if known, err := tellsConfig(c.failed(of, err)); !known {
		return d, err
	}
	cfg := got.GetConfig()
	d.config = &modelConfig{int(cfg.GetMaxBatchSize()), cfg.GetModelTransactionPolicy().GetDecoupled(),
		cfg.GetSequenceBatching() != nil}
	return d, nil
}

func tensorMetadata(of []*inferencepb.ModelMetadataResponse_TensorMetadata) []oip.TensorMetadata {
	out := make([]oip.TensorMetadata, len(of))
	for i, t := range of {
		out[i] = oip.TensorMetadata{Name: t.GetName(), Datatype: t.GetDatatype(), Shape: ints(t.GetShape())}
	}
	return out
}

func ints(of []int64) []int {
	out := make([]int, len(of))
	for i, n := range of {
		out[i] = int(n)
	}
	return out
}

func (c *viaGRPC) infer(ctx context.Context, k *call) error {
	of := ctx
	ctx, err := c.authorized(ctx)
	if err != nil {
		return err
	}
	req := &inferencepb.ModelInferRequest{ModelName: c.l.model, ModelVersion: c.l.set.Version,
		Parameters: parameters(withTimeout(of, k.params))}
	size := int64(0)
	for _, t := range k.inputs {
		in := &inferencepb.ModelInferRequest_InferInputTensor{Name: t.Name, Datatype: string(t.Datatype)}
		for _, n := range t.Shape {
			in.Shape = append(in.Shape, int64(n))
		}
		req.Inputs, req.RawInputContents = append(req.Inputs, in), append(req.RawInputContents, t.Data)
		size += int64(len(t.Data))
	}
	if err := k.charge(size); err != nil { // for the copy sent by the call
		return err
	}
	answer := &answer{call: k}
	if err := c.conn.Invoke(ctx, inferencepb.GRPCInferenceService_ModelInfer_FullMethodName, req, answer,
		grpc.ForceCodecV2(codec{encoding.GetCodecV2(proto.Name)})); err != nil {
		if answer.refused != nil {
			return answer.refused
		}
		return c.failed(of, err)
	}
	return answer.tensors()
}

// parameters returns the parameters as messages.
func parameters(of stream.Params) map[string]*inferencepb.InferParameter {
	out := make(map[string]*inferencepb.InferParameter, len(of))
	for key, value := range of {
		switch v := value.(type) {
		case string:
			out[key] = &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_StringParam{
				StringParam: v}}
		case int64:
			out[key] = &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_Int64Param{
				Int64Param: v}}
		case float64:
			out[key] = &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_DoubleParam{
				DoubleParam: v}}
		case bool:
			out[key] = &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_BoolParam{BoolParam: v}}
		}
	}
	return out
}

// answer is the target for decoding a reply of ModelInfer.
type answer struct {
	call    *call
	msg     inferencepb.ModelInferResponse
	refused error // by the budget
}

// codec charges the memory of an answer to the memory budget before decoding the answer.
type codec struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	a, ok := v.(*answer)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if a.refused = a.call.charge(2 * int64(data.Len())); a.refused != nil { // raw and decoded
		return a.refused
	}
	return c.CodecV2.Unmarshal(data, &a.msg)
}

// tensors puts the outputs into the call.
func (a *answer) tensors() error {
	raw := a.msg.GetRawOutputContents()
	for i, out := range a.msg.GetOutputs() {
		t := stream.Tensor{Name: out.GetName(), Datatype: stream.Datatype(out.GetDatatype()),
			Shape: ints(out.GetShape())}
		switch {
		case i < len(raw):
			t.Data = raw[i]
		case len(raw) > 0:
			return stream.Errorf(stream.Internal, "", "the other server's answer has %d outputs and the data of %d",
				len(a.msg.GetOutputs()), len(raw))
		default:
			t.Data = contents(t.Datatype, out.GetContents())
			if err := a.call.charge(int64(len(t.Data))); err != nil {
				return err
			}
		}
		a.call.outputs = append(a.call.outputs, t)
	}
	return nil
}

// contents returns typed contents in the form of tensors; the caller checks the size.
func contents(datatype stream.Datatype, c *inferencepb.InferTensorContents) (data []byte) {
	le := binary.LittleEndian
	switch datatype {
	case stream.Bool:
		for _, v := range c.GetBoolContents() {
			if v {
				data = append(data, 1)
			} else {
				data = append(data, 0)
			}
		}
	case stream.Int8, stream.Int16, stream.Int32:
		for _, v := range c.GetIntContents() {
			data = le.AppendUint32(data, uint32(v))[:len(data)+datatype.Size()]
		}
	case stream.Uint8, stream.Uint16, stream.Uint32:
		for _, v := range c.GetUintContents() {
			data = le.AppendUint32(data, v)[:len(data)+datatype.Size()]
		}
	case stream.Int64:
		for _, v := range c.GetInt64Contents() {
			data = le.AppendUint64(data, uint64(v))
		}
	case stream.Uint64:
		for _, v := range c.GetUint64Contents() {
			data = le.AppendUint64(data, v)
		}
	case stream.Float32:
		data = stream.AppendFloat32(data, c.GetFp32Contents()...)
	case stream.Float64:
		for _, v := range c.GetFp64Contents() {
			data = le.AppendUint64(data, math.Float64bits(v))
		}
	case stream.Bytes:
		for _, v := range c.GetBytesContents() {
			data = append(le.AppendUint32(data, uint32(len(v))), v...)
		}
	}
	return data
}
