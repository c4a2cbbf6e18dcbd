package remote

import (
	"bytes"
	"context"
	"io"

	"millrace/internal/oip"
	"millrace/stream"
	"millrace/workers"
)

// description is the upstream server's description of its model.
type description struct {
	inputs, outputs []stream.TensorSpec // including the batch axis, if any
	config          *modelConfig        // nil: the upstream server tells no configuration
}

// modelConfig is the part of a model configuration about calls of the model.
type modelConfig struct {
	MaxBatch  int
	Decoupled bool
	Sequences bool
}

// Bounds of a description.
const (
	maxTensors = 64
	maxDims    = 32
	maxText    = 1 << 20 // bytes of any answer other than an inference
)

// specs returns tensors of the metadata as specifications.
func specs(list string, of []oip.TensorMetadata) ([]stream.TensorSpec, error) {
	if len(of) > maxTensors {
		return nil, stream.Errorf(stream.Unsupported, "upstream.model", "has %d %s: at most %d are forwarded", len(of),
			list, maxTensors)
	}
	out := make([]stream.TensorSpec, len(of))
	for i, t := range of {
		spec := stream.TensorSpec{Name: t.Name, Datatype: stream.Datatype(t.Datatype), Shape: t.Shape}
		if !spec.Datatype.Valid() || t.Name == "" || len(t.Shape) > maxDims {
			return nil, stream.Errorf(stream.Unsupported, "upstream.model",
				"has in its %s the tensor %.64q of type %.32q and %d dimensions, which is not forwarded", list, t.Name,
				t.Datatype, len(t.Shape))
		}
		for _, d := range t.Shape {
			if d < -1 {
				return nil, stream.Errorf(stream.Unsupported, "upstream.model",
					"has in its %s the tensor %.64q of shape %v, which is not a shape", list, t.Name, t.Shape)
			}
		}
		out[i] = spec
	}
	return out, nil
}

// batches reports whether the first dimension of all tensors is free.
func (d *description) batches() bool {
	for _, list := range [][]stream.TensorSpec{d.inputs, d.outputs} {
		for _, t := range list {
			if len(t.Shape) == 0 || t.Shape[0] != -1 {
				return false
			}
		}
	}
	return true
}

// describe makes the metadata of the model here from the upstream server's metadata.
func (d *description) describe(env *workers.Env) (*stream.Model, error) {
	m := &stream.Model{Name: env.Name, Inputs: d.inputs, Outputs: d.outputs, MaxBatch: 1, Axis: stream.NoAxis}
	unsupported := func(format string, args ...any) (*stream.Model, error) {
		return nil, stream.Errorf(stream.Unsupported, "upstream.model", format, args...)
	}
	most := 0
	if c := d.config; c != nil {
		switch {
		case c.Decoupled:
			return unsupported("answers a request several times (decoupled), which is not forwarded: send its " +
				"requests to its own server")
		case c.Sequences:
			return unsupported("keeps state between the requests of a sequence, which is not forwarded: send its " +
				"requests to its own server, or load it on this one")
		}
		most = c.MaxBatch
	} else if len(d.inputs) > 0 {
		most = env.MaxBatch // the operator's setting allows batches
		if most > 1 && !d.batches() {
			return nil, stream.Errorf(stream.InvalidArgument, "batching.max_size",
				"is %d, and the other server's model has inputs or outputs without a free batch axis: leave it out",
				most)
		}
	}
	switch {
	case len(d.inputs) == 0: // such as an identity: any input is accepted
		m.AcceptsAnyInput, m.Ragged, m.Axis = true, true, stream.FreeAxis
		for i := range m.Outputs {
			m.Outputs[i].Unbatched = true // the shape already has the upstream server's batch axis
		}
		return m, nil
	case most > 0 && d.batches():
		if env.MaxBatch > most {
			return nil, stream.Errorf(stream.InvalidArgument, "batching.max_size",
				"is %d, and the other server's model takes at most %d rows: lower it", env.MaxBatch, most)
		}
		if m.MaxBatch = most; env.MaxBatch > 0 {
			m.MaxBatch = env.MaxBatch
		}
		m.Axis, m.Inputs, m.Outputs = stream.FreeAxis, rows(d.inputs), rows(d.outputs)
	}
	for _, in := range m.Inputs {
		if in.Datatype == stream.Bytes { // rows of strings have no fixed size
			m.Ragged, m.JoinRagged = true, true
		}
	}
	return m, nil
}

// rows returns the specifications without their batch axis.
func rows(of []stream.TensorSpec) []stream.TensorSpec {
	out := make([]stream.TensorSpec, len(of))
	for i, t := range of {
		t.Shape = t.Shape[1:]
		out[i] = t
	}
	return out
}

// detect finds the protocol of the server with a request of HTTP/1.1: a server with only gRPC answers differently.
func (l *link) detect(ctx context.Context) (scheme string, err error) {
	start, err := l.firstBytes(ctx)
	switch {
	case err != nil:
		return "", err
	case bytes.Equal(start, []byte(httpStart)):
		return "http", nil
	}
	return "grpc", nil
}

// httpStart begins each answer of HTTP/1.1.
const httpStart = "HTTP/"

// firstBytes returns the beginning of the server's answer to a request of HTTP/1.1; empty = the server does not answer.
func (l *link) firstBytes(ctx context.Context) ([]byte, error) {
	conn, err := l.dial(ctx, "tcp", l.at.host)
	if err != nil {
		return nil, unreachable(err)
	}
	defer func() { _ = conn.Close() }()
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end)
	}
	if _, err = io.WriteString(conn, "GET /v2/health/live HTTP/1.1\r\nHost: "+l.at.host+
		"\r\nConnection: close\r\n\r\n"); err != nil {
		return nil, unreachable(err)
	}
	start := make([]byte, len(httpStart))
	n, _ := io.ReadFull(conn, start)
	return start[:n], nil
}

// otherProtocol returns an error when a server that another kind has started answers in the protocol that is not set,
// or nil.
func (l *link) otherProtocol(ctx context.Context) error {
	if l.dialer == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), protocolLimit)
	defer cancel()
	start, err := l.firstBytes(ctx)
	is := string(start) == httpStart
	switch {
	case err != nil || len(start) == 0:
		return nil
	case is && !l.at.http():
		return stream.Errorf(stream.InvalidArgument, "upstream.protocol",
			"is grpc, and %s answers HTTP: set http, or the port of gRPC", l.at.host)
	case !is && l.at.http():
		return stream.Errorf(stream.InvalidArgument, "upstream.protocol",
			"is http, and %s does not answer HTTP: set grpc, or the port of HTTP", l.at.host)
	}
	return nil
}
