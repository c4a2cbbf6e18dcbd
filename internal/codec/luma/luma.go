// Package luma converts the luma of limited range, BT.601, to full range. It is a package of its own because one that
// uses cgo cannot have assembly.
package luma

// full is the full range of a luma in limited range: 255/219 of what it is above 16, rounded.
var full = func() (t [256]byte) {
	for l := range t {
		v := (76309*(int32(l)-16) + 1<<15) >> 16
		t[l] = byte(min(max(v, 0), 255))
	}
	return t
}()

// Full writes the full range of y to out, which has at least the length of y.
func Full(out, y []byte) {
	out = out[:len(y)]
	n := vectors(out, y)
	out, y = out[n:], y[n:]
	for i, l := range y {
		out[i] = full[l]
	}
}
