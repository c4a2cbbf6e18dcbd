package codec

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"millrace/internal/testneeds"
)

// animation is an animated WebP of quadrants that turn grey after the first frame; filter is an ffmpeg filter for the
// first frame.
func animation(t testing.TB, filter string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, b := range map[string][]byte{"0.png": pngOf(t, quad(48, 40)), "1.png": pngOf(t, scene(48, 40))} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "a.webp")
	args := []string{"-v", "error", "-framerate", "5", "-i", filepath.Join(dir, "%d.png"), "-c:v", "libwebp_anim",
		"-lossless", "1", out}
	if filter != "" {
		args = append([]string{"-v", "error", "-framerate", "5", "-i", filepath.Join(dir, "%d.png"), "-vf", filter},
			args[6:]...)
	}
	if msg, err := exec.Command(testneeds.Program(t, "ffmpeg"), args...).CombinedOutput(); err != nil {
		t.Fatalf("ffmpeg: %v\n%s", err, msg)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Only the first frame of an animation counts, with alpha on black as for still pictures.
func TestAnimatedWebP(t *testing.T) {
	for name, dim := range map[string]int{"": 1, "format=rgba,colorchannelmixer=aa=0.5": 2} {
		got, _ := decode(t, animation(t, name), Target{})
		for i, c := range quadColors {
			x, y := 12+24*(i%2), 10+20*(i/2)
			at := 3 * (y*48 + x)
			for k := range 3 {
				if !near(int(got[at+k]), c[k]/dim, 3) {
					t.Errorf("%q: pixel %d,%d is %v, want %v / %d", name, x, y, got[at:at+3], c, dim)
					break
				}
			}
		}
	}
}

// A first frame smaller than the canvas stands at its place, on black.
func TestAnimatedWebPOnALargerCanvas(t *testing.T) {
	b := animation(t, "")
	vp8x := b[20:30]
	vp8x[4], vp8x[7] = 63, 59 // 64 x 60
	at := 12
	for string(b[at:at+4]) != "ANMF" {
		at += 8 + int(b[at+4]) + int(b[at+4])&1
	}
	b[at+8], b[at+11] = 4, 5 // at 8, 10
	got, p := decode(t, b, Target{})
	if p.Width != 64 || p.Height != 60 {
		t.Fatalf("%dx%d", p.Width, p.Height)
	}
	for i, c := range quadColors {
		x, y := 8+12+24*(i%2), 10+10+20*(i/2)
		if q := got[3*(y*64+x):]; !near(int(q[0]), c[0], 3) || !near(int(q[1]), c[1], 3) || !near(int(q[2]), c[2], 3) {
			t.Errorf("pixel %d,%d is %v, want %v", x, y, q[:3], c)
		}
	}
	if got[0] != 0 || got[len(got)-1] != 0 {
		t.Error("the rest is not black")
	}
}
