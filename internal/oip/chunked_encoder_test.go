package oip

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// anyTensor returns a tensor of n elements.
func anyTensor(random *rand.Rand, datatype string, n int) Tensor {
	t := Tensor{Name: "o" + strings.Repeat("\x01", random.IntN(3)), Datatype: datatype, Shape: []int{1, n}}
	if datatype == Bytes {
		alphabet := []string{"a", "b", "\n", "\"", "ü", "\u2028", "日", "\x7f", "😀"}[:2+random.IntN(8)]
		for range n {
			var element []byte
			for range random.IntN(1 << random.IntN(18)) {
				element = append(element, alphabet[random.IntN(len(alphabet))]...)
			}
			t.Data = AppendBytes(t.Data, element)
		}
		return t
	}
	t.Data = make([]byte, n*SizeOf(datatype))
	for i := range t.Data {
		t.Data[i] = byte(random.Uint32())
	}
	return t
}

// The pieces of a response make up its JSON, no piece is larger than PieceSize, and no text is longer than its bound.
func TestPieces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	mem := make([]byte, 0, PieceSize)
	var p ChunkedEncoder
	var head []byte
	refused, several := 0, 0
	for range 300 {
		r := InferResponse{ModelName: "m", ID: "\x02", NotFinite: true,
			Params: Params{{Key: "k\x03", Kind: String, Str: "\x00"}, {Key: "n", Kind: Int, Int: math.MinInt64}}}
		for range random.IntN(4) {
			datatype := []string{Uint8, Int8, Uint16, Int16, Uint32, Int32, Uint64, Int64, Bool, FP32, FP64,
				Bytes}[random.IntN(12)]
			n := random.IntN(1 << random.IntN(17))
			if datatype == Bytes {
				n = random.IntN(20)
			}
			r.Outputs = append(r.Outputs, anyTensor(random, datatype, n))
		}
		binary := NeverBinary
		if random.IntN(4) == 0 {
			binary = func(i int) bool { return i == 0 }
		}
		whole, wantErr := AppendResponse(nil, &r, binary)
		var err error
		if head, err = p.Begin(nil, head, &r, binary); err != nil || wantErr != nil {
			if refused++; err == nil || wantErr == nil || err.Error() != wantErr.Error() ||
				!errors.Is(err, ErrNotJSON) {
				t.Errorf("error %v, want %v", err, wantErr)
			}
			continue
		}
		if bound := TextBound(&r, binary); len(whole) > bound {
			t.Errorf("a text of %d bytes, more than %d", len(whole), bound)
		}
		if n := p.Size(mem); n != len(whole) {
			t.Errorf("size %d, want %d", n, len(whole))
		}
		var all []byte
		pieces := 0
		for {
			piece := p.Append(mem[:0])
			if len(piece) == 0 {
				break
			}
			if len(piece) > PieceSize || &piece[0] != &mem[:1][0] {
				t.Fatalf("a piece of %d bytes", len(piece))
			}
			all = append(all, piece...)
			pieces++
		}
		if !bytes.Equal(all, whole) {
			t.Fatalf("%d pieces of %d bytes are not the text of %d bytes", pieces, len(all), len(whole))
		}
		if pieces > 3 {
			several++
		}
		generated, err := AppendGenerated(nil, &r)
		if bound := TextBound(&r, NeverBinary); err == nil && len(generated) > bound {
			t.Errorf("a generated text of %d bytes, more than %d", len(generated), bound)
		}
	}
	if refused == 0 || several < 20 {
		t.Errorf("%d texts were refused, and %d had several pieces", refused, several)
	}
}

// TestLongestNumbers: no number is longer than mostText says.
func TestLongestNumbers(t *testing.T) {
	long32 := []float32{-1.1754943e-38, -math.MaxFloat32, -1.17549435e-38, -1.2345679e-38, -0.00012345679, -123456.79,
		math.SmallestNonzeroFloat32, float32(math.Inf(-1))}
	long64 := []float64{-2.2250738585072014e-308, -math.MaxFloat64, -1.2345678901234567e-308, -0.00012345678901234567,
		-123456.78901234567, math.Inf(-1)}
	random := rand.New(rand.NewPCG(3, 4))
	for range 200_000 {
		long32 = append(long32, math.Float32frombits(random.Uint32()))
		long64 = append(long64, math.Float64frombits(random.Uint64()))
	}
	for _, v := range long32 {
		out, _, _ := appendData(nil, FP32, le32(math.Float32bits(v)), true)
		if len(out)+1 > mostText(FP32) {
			t.Fatalf("%s is longer than %d", out, mostText(FP32))
		}
	}
	for _, v := range long64 {
		out, _, _ := appendData(nil, FP64, le64(math.Float64bits(v)), true)
		if len(out)+1 > mostText(FP64) {
			t.Fatalf("%s is longer than %d", out, mostText(FP64))
		}
	}
}

func le32(v uint32) []byte { return []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)} }
func le64(v uint64) []byte { return append(le32(uint32(v)), le32(uint32(v>>32))...) }

// A large BYTES tensor of control characters is refused, since each would become six bytes; a small tensor, and a
// text with few control characters, are sent.
func TestControlCharacters(t *testing.T) {
	text := func(n, every int) []byte {
		b := bytes.Repeat([]byte{'a'}, n)
		for i := 0; i < n && every > 0; i += every {
			b[i] = 0
		}
		return b
	}
	for _, c := range []struct {
		name    string
		first   []byte
		second  []byte
		refused string
	}{
		{"few zeros", nil, make([]byte, 1000), ""},
		{"zeros", []byte("text"), make([]byte, 70_000), "outputs[0].data[1]"},
		{"deletes", bytes.Repeat([]byte{0x7f}, 70_000), nil, "outputs[0].data[0]"},
		{"text", text(70_000, 0), text(70_000, 17), ""},
		{"text with many", text(70_000, 0), text(70_000, 7), "outputs[0].data[1]"},
		{"lines and quotes", bytes.Repeat([]byte("\n\""), 50_000), nil, ""},
	} {
		r := InferResponse{ModelName: "m", Outputs: []Tensor{{Name: "o", Datatype: Bytes, Shape: []int{2},
			Data: AppendBytes(AppendBytes(nil, c.first), c.second)}}}
		whole, err := AppendResponse(nil, &r, nil)
		_, err2 := new(ChunkedEncoder).Begin(nil, nil, &r, nil)
		if c.refused == "" {
			if err != nil || err2 != nil || len(whole) > 7000+3*len(r.Outputs[0].Data) {
				t.Errorf("%s: %d bytes, %v, %v", c.name, len(whole), err, err2)
			}
			continue
		}
		if !errors.Is(err, ErrNotJSON) || !strings.Contains(err.Error(), c.refused) || err2 == nil ||
			err2.Error() != err.Error() {
			t.Errorf("%s: %v, %v", c.name, err, err2)
		}
	}
}
