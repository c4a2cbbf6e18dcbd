package motion

import "math/bits"

// Fixed point: the background has 8 fraction bits, its noise 4, shares 12, and the
// light 16.
const (
	one       = 1 << 8
	shareBits = 12
	lightBits = 16
	lightUnit = 1 << lightBits
)

// noiseFactor is how many medians of the absolute difference a pixel must differ by to
// count: 6.5 medians are 4.4 standard deviations of Gaussian noise.
const noiseFactor = 13 * one / 16 / 2

// background is the picture of a stream without moving objects.
type background struct {
	mean   []uint16 // the picture, times 256
	noise  []uint8  // median of the absolute difference, times 16
	age    []uint8  // ticks since the last change of a foreground pixel
	prev   []uint8  // the frame before
	before []uint8  // the background before the last absorb
	frames int      // seen since start
	light  uint64   // brightness of the last frame relative to the background, times lightUnit
}

func newBackground(pixels int) *background {
	return &background{
		mean: make([]uint16, pixels), noise: make([]uint8, pixels),
		age: make([]uint8, pixels), prev: make([]uint8, pixels), before: make([]uint8, pixels),
	}
}

// start makes the frame the background, and forgets the old background.
func (b *background) start(gray []byte) {
	for i, v := range gray {
		b.mean[i] = uint16(v) * one
	}
	clear(b.noise)
	clear(b.age)
	copy(b.prev, gray)
	copy(b.before, gray)
	b.frames, b.light = 1, lightUnit
}

// subtract marks the foreground in out: pixels that differ from the background by more than least (times 256) and
// more than the noise. The background of all other pixels changes by share (of 1<<shareBits) of the difference.
// Changes of the picture's overall brightness apply to all pixels, also to marked pixels.
func (b *background) subtract(gray []byte, out *mask, least, share int32) {
	var seen, expected uint64
	for y := range out.height {
		line := out.row(y)
		at := y * out.width
		for k := range line {
			n := min(64, out.width-64*k)
			px, mean, noise := gray[at:at+n], b.mean[at:at+n], b.noise[at:at+n]
			at += n
			var lit, sum int32
			line[k], lit, sum = compare(px, mean, noise, b.light, least, share)
			seen += uint64(lit)
			expected += uint64(sum)
			if (y+b.frames)%noiseEvery == 0 {
				estimate(px, mean, noise, line[k])
			}
		}
	}
	b.light = lightUnit
	if expected > 0 {
		hi, lo := bits.Mul64(seen, lightUnit)
		if hi < expected {
			q, _ := bits.Div64(hi, lo, expected)
			b.light = min(max(q, lightUnit*7/8), lightUnit*9/8)
		}
	}
}

// compareEach is subtract for up to 64 pixels. compareEach also returns the sums of the background pixels, as seen
// and as expected. compare does the same with vectors, if supported by the processor.
func compareEach(px []byte, mean []uint16, noise []uint8, light uint64, least,
	share int32) (word uint64, seen, expected int32) {
	mean, noise = mean[:len(px)], noise[:len(px)]
	for i, c := range px {
		v := int32(c) * one
		p := min(int32((uint64(mean[i])*light+lightUnit/2)>>lightBits), 0xffff)
		d := v - p
		far := (max(least, int32(noise[i])*noiseFactor) - max(d, -d)) >> 31 // -1 for a difference
		mean[i] = uint16(p + (d*share+1<<(shareBits-1))>>shareBits&^far)
		seen += v &^ far
		expected += p &^ far
		word = word>>1 | uint64(far)&(1<<63)
	}
	return word >> uint(64-len(px)), seen, expected
}

// noiseEvery is the number of frames between two estimates of a pixel's noise.
const noiseEvery = 4

// estimateEach moves the noise of pixels not marked in word one step towards the median of the absolute difference.
// estimate does the same with vectors, if supported by the processor.
func estimateEach(px []byte, mean []uint16, noise []uint8, word uint64) {
	mean, noise = mean[:len(px)], noise[:len(px)]
	for i, c := range px {
		d := int32(c)*one - int32(mean[i])
		u := int32(noise[i])
		above := (u - max(d, -d)>>4) >> 31 // -1 when the difference is the larger
		marked := -int32(word >> uint(i) & 1)
		noise[i] = uint8(min(max(u+(-2-4*above)&^marked, 0), 255))
	}
}

// initNoise sets the noise of all pixels to the noise of the whole picture, a first estimate, which is right while
// less than half of the picture moves.
func (b *background) initNoise(gray []byte) {
	var count [256]int
	for i, c := range gray {
		d := int32(c)*one - int32(b.mean[i])
		count[min(max(d, -d)>>4, 255)]++
	}
	u, n := 0, 0
	for n += count[u]; 2*n < len(gray); n += count[u] {
		u++
	}
	for i := range b.noise {
		b.noise[i] = uint8(u)
	}
}

// relearn updates the background of a marked pixel outside of moving objects.
func (b *background) relearn(i int, v byte, share int32) {
	d := int32(v)*one - int32(b.mean[i])
	b.mean[i] = uint16(int32(b.mean[i]) + (d*share+1<<(shareBits-1))>>shareBits)
	if u := b.noise[i]; u < 255 {
		b.noise[i] = u + 1
	}
	b.age[i] = 0
}

// adopt makes the present value of a pixel its background.
func (b *background) adopt(i int, v byte) {
	b.before[i] = uint8(b.mean[i] / one)
	b.mean[i] = uint16(v) * one
	b.age[i] = 0
}

// restoreBefore removes pixels from the mask that look like the background before the last adopt: the absorbed
// object has left, or was no object.
func (b *background) restoreBefore(gray []byte, m *mask, least int32) {
	for y := range m.height {
		row := m.row(y)
		at := y * m.width
		for k, w := range row {
			for rest := w; rest != 0; rest &= rest - 1 {
				x := 64*k + bits.TrailingZeros64(rest)
				i := at + x
				d := int32(gray[i]) - int32(b.before[i])
				if max(d, -d)*one <= least {
					b.adopt(i, gray[i])
					w &^= rest & -rest
				}
			}
			row[k] = w
		}
	}
}
