package oip

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// checkFloat compares both widths with strconv, bit by bit.
func checkFloat(t interface{ Fatalf(string, ...any) }, text string) {
	for _, size := range []int{4, 8} {
		want, err := strconv.ParseFloat(text, 8*size)
		var dst [8]byte
		next, _, p := readFloats([]byte(text), 0, dst[:], 1, size)
		if err != nil {
			if p != tooBig {
				t.Fatalf("%s as %d bytes: problem %d; strconv says %v", text, size, p, err)
			}
			continue
		}
		got, expect := binary.LittleEndian.Uint64(dst[:]), math.Float64bits(want)
		if size == 4 {
			expect = uint64(math.Float32bits(float32(want)))
		}
		if p != none || next != len(text) || got != expect {
			t.Fatalf("%s as %d bytes: got %x to %d (problem %d), want %x", text, size, got, next, p, expect)
		}
	}
}

func TestFloatsAsStrconv(t *testing.T) {
	for _, s := range []string{
		"0", "-0", "0.0", "-0.0e5", "0e999999999", "0.000000000000000000000000000000000000000000000000001", "1", "10",
		"1e22", "1e23", "1e-22", "1e-23", "1e27", "1e28", "1e-27", "1e-28",
		"9007199254740991", "9007199254740992", "9007199254740993", "9007199254740993.0000000001", "9007199254740995e1",
		"18446744073709551615", "18446744073709551616", "9999999999999999999", "99999999999999999999",
		"0.9999999999999999999", "0.99999999999999999999",
		"16777216", "16777217", "16777217.0000001", "16777219", "1.00000005960464477539", "1.00000005960464477540",
		"1.00000017881393432617", "1.17549435e-38", "1.1754943e-38", "1e-45", "7e-46", "1e-46",
		"3.4028234e38", "3.4028235e38", "3.4028236e38", "340282346638528859811704183484516925440",
		"340282356779733661637539395458142568448", "1.7976931348623157e308", "1.7976931348623159e308", "5e-324",
		"2e-324", "2.2250738585072011e-308",
		"123456789012345678", "1234567890.1234567890", "0.00000000000000000001234567890123456789", "1E5", "1e+5",
		"1.5E-5", "8.5e0",
	} {
		checkFloat(t, s)
		checkFloat(t, "-"+strings.TrimPrefix(s, "-"))
	}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64().Draw(t, "v")
		checkFloat(t, strconv.FormatFloat(v, 'g', -1, 64))
		checkFloat(t, strconv.FormatFloat(v, 'e', rapid.IntRange(0, 25).Draw(t, "digits"), 64))
		f := rapid.Float32().Draw(t, "f")
		checkFloat(t, strconv.FormatFloat(float64(f), 'g', -1, 32))
		checkFloat(t, strconv.FormatFloat(float64(f), 'f', -1, 32))
	})
}

// TestFloatsNearMiddles tries numbers next to the middle between two floats, where double rounding errs, and numbers
// of 15 to 19 digits over the whole range of the fast ways.
func TestFloatsNearMiddles(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 20000 {
		f := math.Float32frombits(uint32(rng.IntN(40)+107)<<23 | rng.Uint32()&(1<<23-1))
		middle := (float64(f) + float64(math.Nextafter32(f, math.MaxFloat32))) / 2
		exact := new(big.Float).SetFloat64(middle).Text('f', 60)
		exact = strings.TrimRight(strings.TrimRight(exact, "0"), ".")
		checkFloat(t, exact)
		cut := min(len(exact), 12+rng.IntN(9))
		if s := exact[:cut]; !strings.HasSuffix(s, ".") {
			checkFloat(t, s)
		}
		m := strconv.FormatUint(rng.Uint64()>>rng.IntN(14), 10)
		checkFloat(t, m+"e"+strconv.Itoa(rng.IntN(60)-30))
		checkFloat(t, m[:1]+"."+m[1:]+"1")
		// Halfway between two float64: 54 bits, the last bit set.
		half := rng.Uint64()>>10 | 1<<53 | 1
		checkFloat(t, strconv.FormatUint(half, 10))
		checkFloat(t, strconv.FormatUint(half, 10)+"00e-2")
	}
}

// TestUint8AtEachPlace compares numbers of all lengths, right and wrong, with
// encoding/json, at each place of a chunk.
func TestUint8AtEachPlace(t *testing.T) {
	texts := []string{"", "00", "01", "000", "007", "010", "099", "0255", "1000", "2550", "00000000", "-1", "1.5",
		"1e1", " 7", "7 ", "\n7", "[7]", "7 7"}
	for v := range 1000 {
		texts = append(texts, strconv.Itoa(v))
	}
	dst := make([]byte, 150)
	for _, sep := range []string{",", ", "} {
		for shift := range 32 {
			head := strings.Repeat("1"+sep, 17) + strings.Repeat("22"+sep, shift)
			tail := sep + strings.TrimSuffix(strings.Repeat("255"+sep, 80), sep) + "]"
			n := 17 + shift + 1 + 80
			for _, text := range texts {
				b := []byte("    [" + head + text + tail)
				v, err := strconv.Atoi(strings.TrimSpace(text))
				good := err == nil && v >= 0 && v <= 255 && json.Valid([]byte(text))
				if _, count, p := readInts(b, 5, dst, n, intRange{0, 255}, 1); (p == none) != good {
					t.Fatalf("%q is number %d of %q: problem %d at element %d", text, 17+shift, b, p, count)
				}
				if good && (dst[17+shift] != byte(v) || dst[0] != 1 || dst[16] != 1 || dst[n-1] != 255) {
					t.Fatalf("%q is number %d of %q: got %d", text, 17+shift, b, dst[:n])
				}
			}
		}
	}
}

// TestBlockUint8 compares the reading of blocks with encoding/json, on correct text and on text with a changed
// character.
func TestBlockUint8(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	chars := []byte("0123456789,, -.[]eE\n\t\"/:;lL\x00\x1f\x7f\x80\xac\xb0\xff")
	var accepted, refused int
	for round := range 30000 {
		n := 65 + rng.IntN(200)
		sep := []string{",", ", "}[round&1]
		high := []int{256, 10, 100, 256}[rng.IntN(4)]
		var b []byte
		b = append(b, '[')
		for i := range n {
			if i > 0 {
				b = append(b, sep...)
			}
			b = strconv.AppendInt(b, int64(rng.IntN(high)), 10)
		}
		b = append(b, ']')
		if round%8 != 0 {
			b[1+rng.IntN(len(b)-2)] = chars[rng.IntN(len(chars))]
		}
		var want []int32
		good := json.Unmarshal(b, &want) == nil && len(want) == n
		for _, v := range want {
			good = good && v >= 0 && v <= 255
		}
		dst := make([]byte, n)
		next, _, p := readInts(b, 1, dst, n, intRange{0, 255}, 1)
		ok := p == none && string(b[skipSpace(b, next):]) == "]"
		if ok != good {
			t.Fatalf("accepted is %v, should be %v (problem %d at %d)\n%q", ok, good, p, next, b)
		}
		if !ok {
			refused++
			continue
		}
		accepted++
		for i, v := range want {
			if dst[i] != byte(v) {
				t.Fatalf("element %d is %d, want %d\n%q", i, dst[i], v, b)
			}
		}
	}
	if accepted < 3000 || refused < 3000 {
		t.Errorf("%d accepted, %d refused: the test lost its point", accepted, refused)
	}
}

// TestIntsAtTheirEnds reads every length of number, and the ends of every range.
func TestIntsAtTheirEnds(t *testing.T) {
	for _, datatype := range []string{Uint8, Uint16, Uint32, Uint64, Int8, Int16, Int32, Int64} {
		r, size := intRangeOf(datatype)
		try := func(text string, want bool) {
			var dst [8]byte
			next, _, p := readInts([]byte(text), 0, dst[:], 1, r, size)
			if ok := p == none && next == len(text); ok != want {
				t.Errorf("%s as %s: problem %d, at %d", text, datatype, p, next)
				return
			}
			if !want {
				return
			}
			n, _ := new(big.Int).SetString(text, 10)
			wanted := n.Uint64()
			if n.Sign() < 0 {
				wanted = uint64(n.Int64())
			}
			if got := binary.LittleEndian.Uint64(dst[:]); got != wanted&(1<<(8*size)-1) && size < 8 ||
				size == 8 && got != wanted {
				t.Errorf("%s as %s: got %x", text, datatype, got)
			}
		}
		above, below := new(big.Int).SetUint64(r.above), new(big.Int).SetUint64(r.below)
		one := big.NewInt(1)
		try(above.String(), true)
		try(new(big.Int).Add(above, one).String(), false)
		try("-"+below.String(), true)
		try("-"+new(big.Int).Add(below, one).String(), false)
		try("-0", true)
		for digits := 1; digits <= 40; digits++ {
			text := strings.Repeat("9", digits)
			n, _ := new(big.Int).SetString(text, 10)
			try(text, n.Cmp(above) <= 0)
			try("-"+text, n.Cmp(below) <= 0)
			try("0"+text, false)
			try(text+"x", false)
			try(text+".0", false)
		}
	}
}
