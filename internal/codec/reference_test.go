package codec

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// encodings are the pictures written by ffmpeg but not by Go's encoders.
var encodings = map[string][]string{
	"420.jpg":          {"-pix_fmt", "yuvj420p", "-q:v", "2"},
	"422.jpg":          {"-pix_fmt", "yuvj422p", "-q:v", "2"},
	"444.jpg":          {"-pix_fmt", "yuvj444p", "-q:v", "2"},
	"gray.jpg":         {"-pix_fmt", "gray", "-q:v", "2"},
	"rgb48.png":        {"-pix_fmt", "rgb48be"},
	"rgba64.png":       {"-vf", "format=rgba,colorchannelmixer=aa=0.6", "-pix_fmt", "rgba64be"},
	"gray16.png":       {"-pix_fmt", "gray16be"},
	"gray-alpha.png":   {"-vf", "format=rgba,colorchannelmixer=aa=0.6", "-pix_fmt", "ya8"},
	"gray-alpha16.png": {"-vf", "format=rgba,colorchannelmixer=aa=0.6", "-pix_fmt", "ya16be"},
	"mono.png":         {"-pix_fmt", "monob"},
	"palette.png":      {"-pix_fmt", "pal8"},
	"interlaced.png":   {"-pix_fmt", "rgba", "-flags", "+ildct"},
	"lossy.webp":       {"-c:v", "libwebp", "-pix_fmt", "yuv420p", "-quality", "95"},
	"lossless.webp":    {"-c:v", "libwebp", "-lossless", "1"},
	"alpha.webp": {"-vf", "format=rgba,colorchannelmixer=aa=0.6", "-c:v", "libwebp", "-pix_fmt", "yuva420p",
		"-quality", "95"},
	"alphalossless.webp": {"-vf", "format=rgba,colorchannelmixer=aa=0.6", "-c:v", "libwebp", "-pix_fmt", "bgra",
		"-lossless", "1"},
}

// pillow writes pictures that neither ffmpeg nor Go writes.
const pillow = `
import sys
from PIL import Image
m = Image.open(sys.argv[1]).convert("RGB")
d = sys.argv[2] + "/"
for s in (0, 1, 2):
    m.save(d + "progressive%d.jpg" % s, quality=92, subsampling=s, progressive=True, optimize=True)
m.convert("L").save(d + "grayprogressive.jpg", quality=92, progressive=True)
m.convert("CMYK").save(d + "cmyk.jpg", quality=92)
p = m.quantize(64)
p.save(d + "clear.png", transparency=p.getpixel((20, 20)))
p.save(d + "bits.png", bits=4)
m.convert("1").save(d + "bit.png")
m.save(d + "keyed.png", transparency=m.getpixel((20, 20)))
`

// Colours match ffmpeg's decoders for the same file, at the picture's own size; transparent pixels on black.
func TestColoursAgainstFFmpeg(t *testing.T) {
	if testing.Short() {
		t.Skip("compares many pictures with FFmpeg's")
	}
	dir := t.TempDir()
	from := filepath.Join(dir, "from.png")
	// Busy in brightness and smooth in colours: decoders spread subsampled chroma differently.
	m, waves := scene(203, 151), busy(203, 151)
	for i := range m.Pix {
		if i%4 < 3 {
			m.Pix[i] = m.Pix[i]/2 + waves.Pix[i&^3]/2
		}
	}
	if err := os.WriteFile(from, pngOf(t, m), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-i", from}
	for name, how := range encodings {
		args = append(append(args, how...), filepath.Join(dir, name))
	}
	ff(t, args...)
	if out, err := exec.Command(testneeds.Python(t, "PIL"), "-c", pillow, from, dir).CombinedOutput(); err != nil {
		t.Fatalf("Pillow: %v\n%s", err, bytes.TrimSpace(out))
	}
	names, err := filepath.Glob(dir + "/*.*")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("testdata/*.[jpw]*")
	if err != nil || len(more) < 10 {
		t.Fatal(err, more)
	}
	for _, name := range append(names, more...) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, name, b)
	}
}

// ff runs ffmpeg and returns the output.
func ff(t testing.TB, args ...string) []byte {
	t.Helper()
	return ffWith(t, nil, args...)
}

// ffWith is ff with an input.
func ffWith(t testing.TB, in []byte, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(testneeds.Program(t, "ffmpeg"), append([]string{"-v", "error", "-y"}, args...)...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("ffmpeg %v: %v\n%s", args, err, said.String())
	}
	return out.Bytes()
}

func compare(t *testing.T, name string, b []byte) {
	t.Helper()
	rgba := ff(t, "-i", name, "-sws_flags", "bilinear+accurate_rnd+full_chroma_int+full_chroma_inp", "-pix_fmt",
		"rgba", "-f", "rawvideo", "-")
	premultiply(rgba)
	got, p := decode(t, b, Target{})
	if len(rgba) != 4*p.Width*p.Height {
		t.Errorf("%s: %dx%d, ffmpeg has %d bytes", name, p.Width, p.Height, len(rgba))
		return
	}
	sum := 0
	for i, v := range got {
		d := int(v) - int(rgba[i/3*4+i%3])
		sum += max(d, -d)
	}
	limit := 1.5
	if strings.HasPrefix(name, "testdata") && !strings.HasSuffix(name, ".png") {
		limit = 5 // pure colours side by side: decoders spread subsampled chroma differently
	}
	if mean := float64(sum) / float64(len(got)); mean > limit {
		t.Errorf("%s: %.2f levels off on average, want %.1f at most", filepath.Base(name), mean, limit)
	} else {
		t.Logf("%s: %.2f", filepath.Base(name), mean)
	}
}
