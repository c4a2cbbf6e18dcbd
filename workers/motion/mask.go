package motion

import "math/bits"

// mask is a binary picture: pixel x of a row is bit x%64 of the row's word x/64. The bits past the width are 0.
type mask struct {
	width, height int
	stride        int    // words a row
	last          uint64 // the pixel bits of a row's last word
	bits          []uint64
}

func newMask(width, height int) mask {
	stride := (width + 63) / 64
	return mask{
		width: width, height: height, stride: stride,
		last: ^uint64(0) >> uint(stride*64-width), bits: make([]uint64, stride*height),
	}
}

func (m *mask) row(y int) []uint64 { return m.bits[y*m.stride : (y+1)*m.stride] }

// count returns how many bits are set.
func (m *mask) count() (n int) {
	for _, w := range m.bits {
		n += bits.OnesCount64(w)
	}
	return n
}

// next returns the first run of set bits at or after x in a row, up to end; from == end means no run.
func next(row []uint64, x, end int) (from, to int) {
	from = findBit(row, x, end, 0)
	return from, findBit(row, from, end, ^uint64(0))
}

// findBit returns the first position at or after x whose bit, XORed with flip, is set; end without such a bit.
func findBit(row []uint64, x, end int, flip uint64) int {
	for x < end {
		if w := (row[x>>6] ^ flip) >> uint(x&63); w != 0 {
			return min(x+bits.TrailingZeros64(w), end)
		}
		x = (x | 63) + 1
	}
	return end
}

// neighbours returns the words whose bit x is the left and the right neighbour of x.
func neighbours(row []uint64, i int) (left, right uint64) {
	w := row[i]
	left, right = w<<1, w>>1
	if i > 0 {
		left |= row[i-1] >> 63
	}
	if i+1 < len(row) {
		right |= row[i+1] << 63
	}
	return left, right
}

// majority sets each pixel of m to the majority of the surrounding 3x3 pixels of src: single pixels and holes vanish,
// and edges stay. majority adds the bits of 64 pixels at once, as in a hardware adder. rows is scratch memory of
// 6*stride words.
func (m *mask) majority(src *mask, rows []uint64) {
	n := m.stride
	var sum, carry [3][]uint64 // of three pixels side by side, by row
	for k := range 3 {
		sum[k], carry[k] = rows[2*k*n:(2*k+1)*n], rows[(2*k+1)*n:(2*k+2)*n]
	}
	across := func(y int) {
		s, c := sum[y%3], carry[y%3]
		if y >= src.height {
			clear(s)
			clear(c)
			return
		}
		row := src.row(y)
		for i, w := range row {
			l, r := neighbours(row, i)
			s[i], c[i] = add(l, w, r)
		}
	}
	clear(rows)
	across(0)
	for y := range m.height {
		across(y + 1)
		out := m.row(y)
		for i := range out {
			ones, k := add(sum[0][i], sum[1][i], sum[2][i])
			twos, fours := add(carry[0][i], carry[1][i], carry[2][i])
			twos, k = twos^k, twos&k
			fours, eights := fours^k, fours&k
			out[i] = eights | fours&(twos|ones) // 5 and more
		}
		out[n-1] &= m.last
	}
}

// add adds three bits: a full adder.
func add(a, b, c uint64) (sum, carry uint64) {
	return a ^ b ^ c, a&b | c&(a|b)
}

// grow sets m to src dilated by r pixels to every side. tmp is a mask of the same size.
// A mask dilated by n becomes one dilated by n+k when it is combined with itself moved
// by k: without gaps, and whatever is cut off at the border, for k up to n+1.
func (m *mask) grow(src, tmp *mask, r int) {
	copy(m.bits, src.bits)
	for n := 0; n < r; {
		k := min(n+1, r-n, 63)
		tmp.moveAcross(m, uint(k))
		m.moveDown(tmp, k)
		n += k
	}
}

// moveAcross sets m to src, and src moved by k pixels, 1 to 63, to the left and to the
// right.
func (m *mask) moveAcross(src *mask, k uint) {
	n := m.stride
	for at := 0; at < len(src.bits); at += n {
		in, out := src.bits[at:at+n], m.bits[at:at+n]
		left := uint64(0)
		for i, w := range in {
			right := uint64(0)
			if i+1 < len(in) {
				right = in[i+1]
			}
			out[i] = w | w<<(k&63) | left>>(-k&63) | w>>(k&63) | right<<(-k&63)
			left = w
		}
		out[n-1] &= m.last
	}
}

// moveDown sets m to src, and src moved by k rows up and down.
func (m *mask) moveDown(src *mask, k int) {
	copy(m.bits, src.bits)
	if k >= m.height {
		return
	}
	d := k * m.stride
	below := m.bits[d:]
	for i, w := range src.bits[:len(src.bits)-d] {
		below[i] |= w
	}
	for i, w := range src.bits[d:] {
		m.bits[i] |= w
	}
}

// trim clears the bits beyond the width.
func (m *mask) trim() {
	for i := m.stride - 1; i < len(m.bits); i += m.stride {
		m.bits[i] &= m.last
	}
}
