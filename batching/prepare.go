package batching

import (
	"errors"

	"millrace/stream"
	"millrace/stream/buf"
)

// Decode decodes a request's picture into dst, one row of the model's input, and sets the position of the picture in
// the row (Request.SentWidth, MapX, ...).
type Decode func(r *stream.Request, dst []byte) error

// Prepare fills the batch: each request gets its rows, and Prepare copies its tensors or decodes its picture straight
// into the rows. A request with an undecodable picture ends as an error (or is dropped for lack of memory). Requests
// ended by a stage, or ended before because the client left, are skipped. The next request takes the rows of a failed
// or skipped request, so that Rows counts only rows to run. Prepare returns false when no request is left. A batch
// prepared before but not run stays unchanged.
func (b *Batch) Prepare(decode Decode) bool {
	if b.prepared {
		return true
	}
	b.Offsets, b.Inputs, b.Outputs = b.Offsets[:0], b.Inputs[:0], nil
	kept, rows := b.Requests[:0], 0
	if !b.Ragged() && !b.sizeInputs() {
		for _, r := range b.Requests {
			r.Drop(stream.Memory)
			r.Unbind()
		}
		clear(b.Requests)
		b.Requests, b.Rows = kept, 0
		return false
	}
	for _, r := range b.Requests {
		if r.Outcome() != stream.Pending || b.Stages != nil && r.Row == nil && b.Stages.Before(r) {
			r.Unbind()
			continue
		}
		if err := b.fillRows(r, rows, decode); err != nil {
			if errors.Is(err, buf.ErrBudget) {
				r.Drop(stream.Memory)
			} else {
				r.Fail(err)
			}
			r.Unbind()
			continue
		}
		kept = append(kept, r)
		b.Offsets = append(b.Offsets, rows)
		rows += r.Rows
	}
	clear(b.Requests[len(kept):])
	b.Requests, b.Rows = kept, rows
	if rows > 0 && !b.Ragged() {
		b.makeInputs(rows)
	}
	for _, r := range kept {
		r.BatchSize = rows
	}
	b.prepared = rows > 0
	return b.prepared
}

func (b *Batch) fillRows(r *stream.Request, row int, decode Decode) error {
	if b.Ragged() {
		return nil
	}
	if r.Row != nil { // stages and decoding have been done
		copy(b.Row(0, row), r.Row.Bytes())
		r.Row.Release()
		r.Row = nil
		return nil
	}
	if r.Codec != stream.Tensors {
		if b.Model.Image == nil {
			return stream.Errorf(stream.Unsupported, "codec", "model %s takes tensors", b.Model.Name)
		}
		if r.Assembled != nil {
			return decodeFrames(r, b.Row(0, row), decode)
		}
		return decode(r, b.Row(0, row))
	}
	for k, spec := range b.Model.Inputs {
		n := b.rowBytes[k]
		for i := range r.Inputs {
			if r.Inputs[i].Name != spec.Name {
				continue
			}
			if r.Assembled != nil { // rows may overlap
				for j := range r.Rows {
					copy(b.Row(k, row+j), r.Inputs[i].Data[j*r.Assembled.Stride:])
				}
			} else {
				copy(b.data[k][row*n:(row+r.Rows)*n], r.Inputs[i].Data)
			}
		}
	}
	return nil
}

// decodeFrames decodes the pictures of r's window into dst, one after the other. The last picture is r's own; the
// boxes of the result refer to its position.
func decodeFrames(r *stream.Request, dst []byte, decode Decode) error {
	pictures := r.Assembled.Frames
	n := len(dst) / len(pictures)
	one := stream.Request{Stream: r.Stream} // decode may use the stream, and must not change r
	for i, p := range pictures {
		one.Frame = p
		err := decode(&one, dst[i*n:(i+1)*n])
		r.Decoding = one.Decoding
		if err != nil {
			return stream.Errorf(stream.CodeOf(err), "frame", "picture %d of %d in this window, seq %d: %w", i+1,
				len(pictures), p.Seq, err)
		}
	}
	r.SentWidth, r.SentHeight, r.MapX, r.MapY = one.SentWidth, one.SentHeight, one.MapX, one.MapY
	return nil
}

// sizeInputs sets the row size of inputs with free dimensions, the same for all requests of the class, and leases
// memory for the rows. sizeInputs reports whether enough memory is left.
func (b *Batch) sizeInputs() bool {
	for k, spec := range b.Model.Inputs {
		if stream.Elements(spec.Shape) >= 0 {
			continue
		}
		r := b.Requests[0]
		for i := range r.Inputs {
			t := &r.Inputs[i]
			if t.Name != spec.Name {
				continue
			}
			dims := t.Shape[len(t.Shape)-len(spec.Shape):]
			b.shapes[k] = append(append(b.shapes[k][:0], 0), dims...)
			b.rowBytes[k] = stream.Elements(dims) * spec.Datatype.Size()
		}
		// The memory is as large as this batch needs and leased only for its run: large inputs from one client must
		// not occupy memory in every batch.
		rows := b.Rows
		if b.Model.Axis == stream.FixedAxis {
			rows = b.Model.MaxBatch
		}
		lease, err := b.mem.Lease(b.rowBytes[k] * rows)
		if err != nil {
			return false
		}
		b.leases[k], b.data[k] = lease, lease.Bytes()
	}
	return true
}

// makeInputs makes the input tensors for the given number of rows.
func (b *Batch) makeInputs(rows int) {
	n := rows
	if b.Model.Axis == stream.FixedAxis {
		n = b.Model.MaxBatch
	}
	for k, spec := range b.Model.Inputs {
		size := b.rowBytes[k]
		clear(b.data[k][rows*size : n*size])
		b.shapes[k][0] = n
		b.Inputs = append(b.Inputs, stream.Tensor{
			Name: spec.Name, Datatype: spec.Datatype, Shape: b.shapes[k], Data: b.data[k][:n*size],
		})
	}
}
