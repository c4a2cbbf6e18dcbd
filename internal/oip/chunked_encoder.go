package oip

import (
	"encoding/binary"
	"unicode/utf8"

	"millrace/internal/processors"
)

// PieceSize is the most bytes of JSON that ChunkedEncoder makes at once, and the longest text made whole without a
// lease.
const PieceSize = 64 << 10

// minCut is the least data of a tensor, in bytes, made in separate pieces.
const minCut = 256

// ChunkedEncoder makes the JSON of a response in pieces, so that a text several times as large as the tensors needs no
// memory. The response must not change until the last piece.
type ChunkedEncoder struct {
	head  []byte // the text without the elements of large tensors
	cuts  []cut
	words bool
	turns *processors.Turns // of the pieces

	at, next  int // progress in head, and in cuts
	now       cut // the tensor being made
	open      bool
	remaining int // remaining bytes of a BYTES element; -1 = no element is begun
}

// cut is where the elements of a tensor follow in a text.
type cut struct {
	at       int
	datatype string
	data     []byte // remaining elements
}

// Begin checks a response and returns to its first piece. The pieces take turns. head is memory for the text between
// the elements of tensors; Begin returns head, grown if necessary. binary and errors are as for AppendResponse.
func (p *ChunkedEncoder) Begin(turns *processors.Turns, head []byte, r *InferResponse,
	binary func(i int) bool) ([]byte, error) {
	p.Reset()
	head, err := appendResponse(head[:0], r, binary, &p.cuts)
	p.head, p.words, p.turns = head, r.NotFinite, turns
	return head, err
}

// Reset forgets the response.
func (p *ChunkedEncoder) Reset() {
	clear(p.cuts)
	*p = ChunkedEncoder{cuts: p.cuts[:0]}
}

// Rewind continues with the first piece.
func (p *ChunkedEncoder) Rewind() { p.at, p.next, p.open, p.now = 0, 0, false, cut{} }

// Size returns the length of the whole text, and returns to the first piece. Size makes all pieces, one by one, in
// mem; mem must have room for PieceSize bytes.
func (p *ChunkedEncoder) Size(mem []byte) (n int) {
	p.Rewind()
	defer p.Rewind()
	for {
		piece := p.Append(mem[:0])
		if len(piece) == 0 {
			return n
		}
		n += len(piece)
	}
}

// Append appends the next piece to dst, at most PieceSize bytes; none when the text is complete. Append waits for a
// turn.
func (p *ChunkedEncoder) Append(dst []byte) []byte {
	if p.turns.Begin(PieceSize) {
		defer p.turns.End()
	}
	for end := len(dst) + PieceSize; ; {
		if p.open {
			if dst = p.appendElements(dst, end); p.open {
				return dst
			}
		}
		to := len(p.head)
		if p.next < len(p.cuts) {
			to = p.cuts[p.next].at
		}
		n := min(to-p.at, end-len(dst))
		dst = append(dst, p.head[p.at:p.at+n]...)
		p.at += n
		if p.at < to || p.next == len(p.cuts) {
			return dst
		}
		p.now, p.open, p.remaining = p.cuts[p.next], true, -1
		p.next++
	}
}

// appendElements appends elements of p.now up to the length end, and unsets p.open after the last.
func (p *ChunkedEncoder) appendElements(dst []byte, end int) []byte {
	if p.now.datatype == Bytes {
		return p.appendTexts(dst, end)
	}
	n := min((end-len(dst))/mostText(p.now.datatype)*SizeOf(p.now.datatype), len(p.now.data))
	if n == 0 {
		return dst
	}
	dst, _, _ = appendData(dst, p.now.datatype, p.now.data[:n], p.words)
	p.now.data = p.now.data[n:]
	if p.open = len(p.now.data) > 0; p.open {
		dst = append(dst, ',')
	}
	return dst
}

// appendTexts is appendElements for BYTES.
func (p *ChunkedEncoder) appendTexts(dst []byte, end int) []byte {
	for {
		if p.remaining < 0 {
			if end-len(dst) < len(`"\u0000",`) {
				return dst
			}
			p.remaining = int(binary.LittleEndian.Uint32(p.now.data))
			p.now.data = p.now.data[4:]
			dst = append(dst, '"')
		}
		n := min(p.remaining, (end-len(dst)-len(`",`))/escaped)
		for n > 0 && n < p.remaining && !utf8.RuneStart(p.now.data[n]) {
			n--
		}
		dst = appendEscaped(dst, unsafeString(p.now.data[:n]))
		p.now.data = p.now.data[n:]
		if p.remaining -= n; p.remaining > 0 {
			return dst
		}
		dst, p.remaining = append(dst, '"'), -1
		if p.open = len(p.now.data) > 0; !p.open {
			return dst
		}
		dst = append(dst, ',')
	}
}

// escaped is the longest text for one byte of a string.
const escaped = len(`\u0000`)

// mostText returns the most bytes of text for an element, with its comma; 0 for BYTES and datatypes without a JSON
// notation.
func mostText(datatype string) int {
	switch datatype {
	case Uint8:
		return len(`255,`)
	case Int8:
		return len(`-128,`)
	case Uint16:
		return len(`65535,`)
	case Int16:
		return len(`-32768,`)
	case Uint32:
		return len(`4294967295,`)
	case Int32:
		return len(`-2147483648,`)
	case Uint64, Int64:
		return len(`-9223372036854775808,`)
	case Bool:
		return len(`false,`)
	case FP32:
		return len(`-0.00012345678,`) + 1 // nine digits
	case FP64:
		return len(`-1.2345678901234567e-308,`)
	}
	return 0
}

// TextSize returns the number of data bytes that AppendResponse writes as text, not the length of the text.
func TextSize(r *InferResponse, binary func(i int) bool) (n int) {
	for i := range r.Outputs {
		if !r.Outputs[i].Shared && (binary == nil || !binary(i)) {
			n += len(r.Outputs[i].Data)
		}
	}
	return n
}

// TextBound returns an upper bound of the length of the JSON by AppendResponse and by AppendGenerated.
func TextBound(r *InferResponse, binary func(i int) bool) int {
	n := 128 + escaped*(len(r.ModelName)+len(r.ModelVersion)+len(r.ID)) + r.Params.bound()
	for i := range r.Outputs {
		t := &r.Outputs[i]
		n += 128 + escaped*len(t.Name) + 21*len(t.Shape) + t.Params.bound()
		switch {
		case t.Shared || binary != nil && binary(i):
		case t.Datatype == Bytes:
			n += textsBound(t.Data)
		default:
			if one := SizeOf(t.Datatype); one > 0 {
				n += len(t.Data) / one * mostText(t.Datatype)
			}
		}
	}
	return n
}

// bound returns an upper bound of the length of the parameters' text.
func (ps Params) bound() (n int) {
	for i := range ps {
		n += 40 + escaped*(len(ps[i].Key)+len(ps[i].Str))
	}
	return n
}

// textsBound is TextBound for the elements of a BYTES tensor of text.
func textsBound(data []byte) int {
	if n := escaped * len(data); n <= PieceSize {
		return n
	}
	n := 0
	for {
		element, rest, ok := NextBytes(data)
		if !ok {
			return n
		}
		n += len(`"",`)
		for _, c := range element {
			n += int(widths[c])
		}
		data = rest
	}
}

// widths are the most bytes of text for each byte of a string.
var widths = func() (w [256]uint8) {
	for c := range w {
		switch {
		case plain[c]:
			w[c] = 1
		case c < utf8.RuneSelf && c != '"' && c != '\\' && c != '\n' && c != '\r' && c != '\t':
			w[c] = uint8(escaped)
		default:
			w[c] = 2 // U+2028 has three bytes
		}
	}
	return w
}()

// maxControls is the largest share of control characters in a tensor of more than PieceSize bytes.
const maxControls = 1.0 / 16

// checkText returns the index of an element of a BYTES tensor that is not text, and the reason; "" if all are text.
func checkText(data []byte) (at int, msg string) {
	left, count := int(maxControls*float64(len(data))), len(data) > PieceSize
	for ; ; at++ {
		element, rest, ok := NextBytes(data)
		if !ok {
			return 0, ""
		}
		if !utf8.Valid(element) {
			return at, "is not UTF-8, which JSON cannot carry"
		}
		if count {
			for _, c := range element {
				if widths[c] == uint8(escaped) {
					left--
				}
			}
			if left < 0 {
				return at, "is not text: control characters, which are six bytes each in JSON, are more than a " +
					"sixteenth of the tensor"
			}
		}
		data = rest
	}
}

// checkData returns the index of an element of data that JSON cannot carry, and the reason; "" if JSON can carry all.
// words allows words for numbers that are not finite.
func checkData(datatype string, data []byte, words bool) (at int, msg string) {
	switch datatype {
	case Bytes:
		return checkText(data)
	case FP32, FP64:
		if words {
			return 0, ""
		}
		return checkFinite(datatype, data)
	}
	if mostText(datatype) == 0 {
		return 0, noDatatype(datatype)
	}
	return 0, ""
}
