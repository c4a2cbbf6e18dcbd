package codec

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"
)

// pieces returns a function that returns b in pieces of n bytes.
func pieces(b []byte, n int) func() []byte {
	return func() []byte {
		p := b[:min(n, len(b))]
		b = b[len(p):]
		return p
	}
}

// inflated decompresses b, at most limit bytes.
func inflated(z *inflater, b []byte, piece, limit int) (out []byte, err error) {
	if err = z.reset(pieces(b, piece), time.Time{}); err != nil {
		return nil, err
	}
	for len(out) < limit {
		if z.from == z.to {
			if z.done {
				return out, nil
			}
			if err = z.fill(); err != nil {
				return nil, err
			}
		}
		n := min(z.to-z.from, limit-len(out))
		out = append(out, z.out[z.from:z.from+n]...)
		z.from += n
	}
	return out, nil
}

func deflated(t testing.TB, b []byte, level int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zlib.NewWriterLevel(&out, level)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestInflateStopsBetweenEmptyBlocks checks that compressed data without any output does
// not go on beyond the deadline: each block builds its tables.
func TestInflateStopsBetweenEmptyBlocks(t *testing.T) {
	empty := []byte{0x78, 0x9c}
	for range 200000 { // four blocks of the fixed code, 10 bits each: not the last one, the code 1, the end of the block
		empty = append(empty, 0x02, 0x08, 0x20, 0x80, 0x00)
	}
	var z inflater
	if err := z.reset(pieces(empty, 4<<10), time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := z.fill(); !errors.Is(err, ErrSlow) {
		t.Errorf("%v, want %v", err, ErrSlow)
	}
}

// materials are data of several kinds: runs, noise, few and many symbols, long matches.
func materials() map[string][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	all := map[string][]byte{"nothing": nil, "one": {7}, "zeros": make([]byte, 1<<20), "scene": packed(busy(200, 150))}
	noise, few, skewed := make([]byte, 300000), make([]byte, 300000), make([]byte, 300000)
	for i := range noise {
		noise[i] = byte(random.Uint32())
		few[i] = byte(random.Uint32() & 3)
		skewed[i] = byte(min(255, int(random.ExpFloat64()*20)))
	}
	all["noise"], all["few"], all["skewed"] = noise, few, skewed
	var repeated []byte
	for range 40 {
		n := 1 + random.IntN(40000)
		if n > len(repeated) {
			repeated = append(repeated, noise[:n]...)
		} else {
			repeated = append(repeated, repeated[len(repeated)-n:]...)
		}
	}
	all["repeated"] = repeated
	var periods []byte
	for p := 1; p < 40; p++ {
		for range 300 {
			periods = append(periods, noise[p*100:p*100+p]...)
		}
	}
	all["periods"] = periods
	return all
}

func TestInflateAgainstZlib(t *testing.T) {
	var z inflater
	for name, want := range materials() {
		for _, level := range []int{flate.HuffmanOnly, 0, 1, 6, 9} {
			b := deflated(t, want, level)
			for _, piece := range []int{1 << 30, 8192, 100, 17, 1} {
				got, err := inflated(&z, b, piece, 1<<30)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s, level %d, pieces of %d: %d bytes of %d, %v", name, level, piece, len(got), len(want), err)
				}
			}
			if len(b) > 20000 {
				b = b[:20000] // the rest is not cut at each byte
			}
			for n := 0; n < len(b)-1; n += 1 + n/100 {
				if got, err := inflated(&z, b[:n], 1<<30, 1<<30); err == nil {
					t.Fatalf("%s, level %d, cut to %d bytes: accepted with %d bytes", name, level, n, len(got))
				}
			}
		}
	}
}

// FuzzInflate compares with compress/zlib, for pieces of two sizes.
func FuzzInflate(f *testing.F) {
	for _, m := range materials() {
		m = m[:min(len(m), 2000)]
		for _, level := range []int{flate.HuffmanOnly, 0, 1, 9} {
			f.Add(deflated(f, m, level), uint16(len(m)%50))
		}
	}
	var z inflater
	const limit = 1 << 20
	f.Fuzz(func(t *testing.T, b []byte, piece uint16) {
		var want []byte
		r, wantErr := zlib.NewReader(bytes.NewReader(b))
		if wantErr == nil {
			want, wantErr = io.ReadAll(io.LimitReader(r, limit))
		}
		got, err := inflated(&z, b, int(piece)+1, limit)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("error %v, compress/zlib has %v", err, wantErr)
		}
		if err == nil && !bytes.Equal(got, want) {
			t.Fatalf("%d bytes differ from the %d of compress/zlib", len(got), len(want))
		}
	})
}

func BenchmarkInflate(b *testing.B) {
	for name, m := range map[string][]byte{"photo": filteredPhoto(), "zeros": make([]byte, 1<<20)} {
		packed := deflated(b, m, 6)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(m)))
			b.ReportAllocs()
			var z inflater
			to := make([]byte, 1920)
			for b.Loop() {
				if err := z.reset(pieces(packed, 8192), time.Time{}); err != nil {
					b.Fatal(err)
				}
				for n := len(m) / len(to); n > 0; n-- {
					if err := z.read(to); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run(name+"/compress", func(b *testing.B) {
			b.SetBytes(int64(len(m)))
			b.ReportAllocs()
			for b.Loop() {
				r, err := zlib.NewReader(bytes.NewReader(packed))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// filteredPhoto is a busy picture with some noise, each byte less the one a pixel before.
func filteredPhoto() []byte {
	random := rand.New(rand.NewPCG(3, 4))
	p := packed(busy(640, 480))
	for i := len(p) - 1; i >= 3; i-- {
		p[i] += byte(random.IntN(4)) - p[i-3]
	}
	return p
}
