//go:build turbojpeg && cgo

package codec

import (
	"encoding/binary"
	"strings"
	"testing"
)

// Both JPEG libraries give the same picture, for all encodings and targets: the mean difference is at most a level,
// and large differences occur only at hard colour edges.
func TestTurboAgainstImageJPEG(t *testing.T) {
	pics := quadPictures(t)
	pics["busy.jpg"] = jpegOf(t, busy(203, 151), 92)
	pics["busy6.jpg"] = withExif(pics["busy.jpg"], 6, binary.BigEndian)
	pics["scene.jpg"] = jpegOf(t, scene(640, 480), 90)
	d := NewDecoder(Limits{})
	defer d.Close()
	for name, b := range pics {
		if Sniff(b) != JPEG {
			continue
		}
		info, err := Header(b)
		if err != nil {
			t.Fatal(err)
		}
		w, h := info.Upright()
		for _, size := range [][2]int{{0, 0}, {(w + 1) / 2, (h + 1) / 2}, {w/4 + 1, h/4 + 1}, {w / 6, h / 6},
			{w * 2 / 3, h / 3}, {w * 2, h + 7}} {
			for _, c := range []Color{RGB, BGR, Gray} {
				for _, fit := range []Fit{Stretch, Letterbox} {
					tg := Target{Width: size[0], Height: size[1], Color: c, Fit: fit}
					turbo, std := make([]byte, tg.Size(w, h)), make([]byte, tg.Size(w, h))
					if _, err := d.Decode(b, tg, turbo); err != nil {
						t.Fatal(name, err)
					}
					j := job{info: info, target: &tg, dst: std}
					if err := j.place(w, h); err != nil {
						t.Fatal(err)
					}
					if err := d.decodeStdJPEG(b, &j); err != nil {
						t.Fatal(name, err)
					}
					sum, worst := 0, 0
					for i := range std {
						diff := int(turbo[i]) - int(std[i])
						diff = max(diff, -diff)
						sum += diff
						worst = max(worst, diff)
					}
					mean := float64(sum) / float64(len(std))
					meanLimit, worstLimit := 1.0, 12
					if !strings.Contains(name, "busy") && !strings.Contains(name, "scene") {
						// Hard edges between pure colours: shrinking blocks by transform and by average rings
						// differently there.
						meanLimit, worstLimit = 16, 130
					}
					if mean > meanLimit || worst > worstLimit {
						t.Errorf("%s to %v %v %v: differ by %.2f on average, %d at most", name, size, c, fit, mean,
							worst)
					}
				}
			}
		}
	}
}
