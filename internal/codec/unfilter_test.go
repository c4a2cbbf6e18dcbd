package codec

import "testing"

// paeth is compared with the definition of the specification, for all values.
func TestPaeth(t *testing.T) {
	abs := func(v int) int { return max(v, -v) }
	for a := range 256 {
		for b := range 256 {
			for c := range 256 {
				p := a + b - c
				want := c
				if pa, pb, pc := abs(p-a), abs(p-b), abs(p-c); pa <= pb && pa <= pc {
					want = a
				} else if pb <= pc {
					want = b
				}
				if got := paeth(int32(a), int32(b), int32(c)); int(got) != want {
					t.Fatalf("paeth(%d, %d, %d) is %d, want %d", a, b, c, got, want)
				}
			}
		}
	}
}
