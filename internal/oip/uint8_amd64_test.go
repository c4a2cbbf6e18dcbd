package oip

import "testing"

// TestWithoutAVX2 runs the tests of numbers from 0 to 255 with the portable code.
func TestWithoutAVX2(t *testing.T) {
	if !hasAVX2 {
		return // the other tests use the portable code
	}
	hasAVX2 = false
	defer func() { hasAVX2 = true }()
	t.Run("places", TestUint8AtEachPlace)
	t.Run("blocks", TestBlockUint8)
}
