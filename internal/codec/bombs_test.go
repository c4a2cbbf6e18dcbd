package codec

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"runtime"
	"strings"
	"testing"
)

// riff puts WebP chunks, name and body in turn, into a file.
func riff(chunks ...string) []byte {
	var body []byte
	for i := 0; i < len(chunks); i += 2 {
		body = append(body, chunks[i]...)
		body = binary.LittleEndian.AppendUint32(body, uint32(len(chunks[i+1])))
		body = append(body, chunks[i+1]...)
		if len(chunks[i+1])%2 == 1 {
			body = append(body, 0)
		}
	}
	out := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(4+len(body)))
	return append(append(out, "WEBP"...), body...)
}

func le24(v int) string { return string([]byte{byte(v), byte(v >> 8), byte(v >> 16)}) }

func vp8x(flags byte, w, h int) string {
	return string([]byte{flags, 0, 0, 0}) + le24(w-1) + le24(h-1)
}

// vp8l is the start of a lossless picture with the claimed size.
func vp8l(w, h int) string {
	return string(binary.LittleEndian.AppendUint32([]byte{0x2f}, uint32(w-1|(h-1)<<14))) + strings.Repeat("\x00", 40)
}

// vp8 is the start of a lossy picture with the claimed size.
func vp8(w, h int) string {
	return "\x10\x02\x00\x9d\x01\x2a" + string([]byte{byte(w), byte(w >> 8), byte(h), byte(h >> 8)}) +
		strings.Repeat("\x00", 40)
}

// anmf is a frame of an animation at the origin, with the picture.
func anmf(w, h int, picture string) string {
	return le24(0) + le24(0) + le24(w-1) + le24(h-1) + "\x00\x00\x00\x00" + picture
}

func pngChunk(name string, body []byte) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	out = append(append(out, name...), body...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[4:]))
}

// A small picture that claims a large size, or decompresses to much data, allocates no more than the size in its
// header allows, wherever in the file the larger size is.
func TestDecompressionBombs(t *testing.T) {
	const side = 16000 // a gigabyte of RGBA
	var zeros bytes.Buffer
	z := zlib.NewWriter(&zeros)
	for range 256 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	start := pngHeaderOf(16, 16)[:33]
	end := pngChunk("IEND", nil)
	png := func(chunks ...[]byte) []byte { return append(bytes.Clone(start), bytes.Join(chunks, nil)...) }
	webpInside := riff("VP8L", vp8l(side, side))[12:]
	lossyInside := riff("VP8 ", vp8(side, side))[12:]

	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"png whose data unpack to 256 MiB": {png(pngChunk("IDAT", zeros.Bytes()), end), ErrCorrupt},
		"png whose text unpacks to 256 MiB": {png(pngChunk("zTXt", append([]byte("a\x00\x00"), zeros.Bytes()...)),
			end), nil},
		"png whose profile unpacks": {png(pngChunk("iCCP", append([]byte("a\x00\x00"), zeros.Bytes()...)),
			end), nil},
		"png with a chunk of 2 GiB":        {png([]byte("\x7f\xff\xff\xffIDAT")), ErrTruncated},
		"png with a second, larger header": {png(pngHeaderOf(side, side)[8:33]), nil},
		"webp of 30,000 squared": {riff("VP8X", vp8x(0, 30000, 30000), "VP8L", vp8l(side, side)),
			ErrTooLarge},
		"webp that is larger than it says": {riff("VP8X", vp8x(0, 16, 16), "VP8L", vp8l(side, side)), nil},
		"webp, lossy, larger than it says": {riff("VP8X", vp8x(0, 16, 16), "VP8 ", vp8(side, side)), nil},
		"webp with a second, smaller header": {riff("VP8X", vp8x(8, side, side), "VP8L", vp8l(side, side), "VP8X",
			vp8x(8, 16, 16)), ErrCorrupt},
		"animation of 30,000 squared": {riff("VP8X", vp8x(2, 30000, 30000), "ANMF",
			anmf(16, 16, string(webpInside))), ErrTooLarge},
		"animation with a larger frame": {riff("VP8X", vp8x(2, 16, 16), "ANMF",
			anmf(16, 16, string(webpInside))), nil},
		"animation with a larger lossy frame": {riff("VP8X", vp8x(2, 16, 16), "ANMF",
			anmf(16, 16, string(lossyInside))), nil},
		"webp with a chunk of 4 GiB": {append(riff("VP8X", vp8x(0, 16, 16)), "VP8L\xff\xff\xff\xff"...), nil},
		"webp of 4 GiB": {append([]byte("RIFF\xff\xff\xff\xff"),
			riff("VP8L", vp8l(16, 16))[8:]...), nil},
		"jpeg of 30,000 squared": {jpegResized(jpegOf(t, scene(64, 48), 90), 30000, 30000), ErrTooLarge},
		"png of 30,000 squared":  {pngHeaderOf(30000, 30000), ErrTooLarge},
	} {
		var before, after runtime.MemStats
		d := NewDecoder(Limits{MaxPixels: 1 << 20})
		dst := make([]byte, 8*8*3)
		runtime.ReadMemStats(&before)
		_, err := d.Decode(c.b, Target{Width: 8, Height: 8}, dst)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: was accepted", name)
		} else if c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if c.want == ErrTooLarge && (err == nil || !strings.Contains(err.Error(), "max_pixels=1048576")) {
			t.Errorf("%s: %v does not name max_pixels", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
			t.Errorf("%s: took %d MiB", name, took>>20)
		}
	}
}

// Bytes changed in transit are an error where the format has a checksum, and elsewhere never cause a panic.
func TestChangedBytes(t *testing.T) {
	d := NewDecoder(Limits{MaxPixels: 1 << 16})
	dst := make([]byte, 8*8*3)
	pics := quadPictures(t)
	pics["animation.webp"] = animation(t, "")
	for name, b := range pics {
		for i := range b {
			broken := bytes.Clone(b)
			broken[i] ^= 0x55
			_, err := d.Decode(broken, Target{Width: 8, Height: 8}, dst)
			if Sniff(b) == PNG && err == nil && i < len(b)-12 {
				t.Errorf("%s with byte %d of %d changed was accepted", name, i, len(b))
			}
			if err != nil && strings.Contains(err.Error(), "panicked") {
				t.Errorf("%s with byte %d changed: %v", name, i, err)
			}
		}
	}
}
