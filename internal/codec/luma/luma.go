// Package luma converts the luma of limited range, BT.601, to full range. luma is a separate package because a
// package with cgo cannot have assembly.
package luma

// full maps a luma in limited range to full range: 255/219 of the excess above 16, rounded.
var full = func() (t [256]byte) {
	for l := range t {
		v := (76309*(int32(l)-16) + 1<<15) >> 16
		t[l] = byte(min(max(v, 0), 255))
	}
	return t
}()

// Full writes y in full range to out; out must be at least as long as y.
func Full(out, y []byte) {
	out = out[:len(y)]
	n := vectors(out, y)
	out, y = out[n:], y[n:]
	for i, l := range y {
		out[i] = full[l]
	}
}
