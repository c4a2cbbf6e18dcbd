package servertest

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os/exec"
	"testing"

	"millrace/internal/testneeds"
)

// HugePNG is the header of a picture of 20,000 x 20,000.
func HugePNG() []byte {
	ihdr := append([]byte("IHDR"), binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 20000), 20000)...)
	ihdr = append(ihdr, 8, 2, 0, 0, 0)
	b := append([]byte("\x89PNG\r\n\x1a\n"), 0, 0, 0, 13)
	b = append(b, ihdr...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(ihdr))
}

// JPEG returns a picture of w by h pixels.
func JPEG(t *testing.T, w, h int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range m.Pix {
		m.Pix[i] = byte(i * 7)
	}
	m.Set(0, 0, color.White)
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// PNG is a gray picture with size w by h in its header, padded to n bytes. Pictures up to 16 Mi pixels have all
// pixels, larger pictures have too few.
func PNG(t *testing.T, w, h, n int) []byte {
	t.Helper()
	pixels := image.Rect(0, 0, w, h)
	if w*h > 1<<24 {
		pixels = image.Rect(0, 0, 1, 1)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(pixels)); err != nil {
		t.Fatal(err)
	}
	out := b.Bytes()
	binary.BigEndian.PutUint32(out[16:], uint32(w))
	binary.BigEndian.PutUint32(out[20:], uint32(h))
	binary.BigEndian.PutUint32(out[29:], crc32.ChecksumIEEE(out[12:29]))
	return append(out, make([]byte, max(0, n-len(out)))...)
}

// Film writes a video of a second.
func Film(t *testing.T, path string) {
	t.Helper()
	c := exec.Command(testneeds.Program(t, "ffmpeg"), "-nostdin", "-v", "error", "-f", "lavfi", "-i",
		"testsrc2=size=64x48:rate=10:duration=1", "-pix_fmt", "yuv420p", path)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// PCM16 returns samples as bytes.
func PCM16(vs ...int) (b []byte) {
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(v)))
	}
	return b
}
