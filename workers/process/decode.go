package process

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"millrace/batching"
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// Programs do not decode pictures. A program sends a picture file of a call or of a tensor of BYTES in the
// message decode, after the text of the message, and gets the pixels in the message decoded.

// decode is the message decode.
type decode struct {
	Type    string `json:"type"`
	ID      uint64 `json:"id"` // of the batch
	Request int    `json:"request"`
	Width   int    `json:"width"` // 0 = the picture's own size
	Height  int    `json:"height"`
	Color   string `json:"color"` // "" = RGB
}

// readDecode reads the message decode.
func (m *message) readDecode() error {
	if err := decodeStrict(m.text, &m.decode); err != nil {
		return fmt.Errorf("in decode: %w", err)
	}
	d := &m.decode
	if d.Width < 0 || d.Height < 0 || d.Width > maxSide || d.Height > maxSide || (d.Width == 0) != (d.Height == 0) {
		return fmt.Errorf(
			"decode wants a picture of %d x %d: want at most %d a side, or 0 for the size of the picture", d.Width,
			d.Height, maxSide)
	}
	m.id = d.ID
	return nil
}

// decode answers the message decode with the pixels or an error.
func (w *Worker) decode(s *slot, b *batching.Batch, m *message) error {
	d := &m.decode
	if d.Request < 0 || d.Request >= len(s.sent) {
		return fmt.Errorf("decode has the request %d of a batch of %d", d.Request, len(s.sent))
	}
	target := codec.Target{Width: d.Width, Height: d.Height, Fill: workers.LetterboxGray}
	if err := target.Color.UnmarshalText([]byte(cmp.Or(d.Color, "RGB"))); err != nil {
		return fmt.Errorf("in decode: color: %w", err)
	}
	// as pictures of frames are
	if i := b.Model.Image; i != nil && i.Width == d.Width && i.Height == d.Height && i.Fit != "" {
		if err := target.Fit.UnmarshalText([]byte(i.Fit)); err != nil {
			return err
		}
	}
	r := b.Requests[s.sent[d.Request]]
	var p workers.Pixels
	err := error(buf.ErrBudget)
	if m.lost == 0 {
		p, err = workers.DecodeFile(s.decoder, r, m.bytes(), target, w.env.Memory)
	}
	defer p.Lease.Release()
	if errors.Is(err, buf.ErrBudget) {
		r.Drop(stream.Memory)
	}
	answer := map[string]any{"type": "decoded", "id": d.ID}
	var data [][]byte
	if err == nil {
		x0, y0 := p.Placed.ToFrame(0, 0)
		x1, y1 := p.Placed.ToFrame(1, 1)
		answer["shape"] = []int{p.Height, p.Width, target.Color.Channels()}
		answer["width"], answer["height"] = p.Placed.Width, p.Placed.Height
		answer["map"] = []float64{x1 - x0, x0, y1 - y0, y0}
		data = append(data, p.Lease.Bytes())
	} else {
		answer["error"] = failureOf(err)
	}
	if err := w.proc.send(text(answer), data, -1, w.patience()); errors.Is(err, os.ErrDeadlineExceeded) {
		w.proc.giveUp("timeout", w.tooLong("did not read a decoded picture", w.patience()))
	}
	return nil // wait notices when the child has gone
}

// failureOf returns the error of a picture for the message decoded.
func failureOf(err error) map[string]any {
	var e *stream.Error
	if errors.As(err, &e) {
		return map[string]any{"code": e.Code, "message": e.Msg}
	}
	return map[string]any{"code": stream.Overloaded, "message": err.Error()}
}

// bytes returns the bytes after the text.
func (m *message) bytes() []byte {
	if m.data == nil {
		return nil
	}
	return m.data.Bytes()
}
