//go:build libwebp && cgo

package codec

import (
	"testing"
)

// Both WebP libraries give the same picture, at its own size and scaled, whole and in part.
func TestLibWebPAgainstGo(t *testing.T) {
	d := NewDecoder(Limits{})
	pics := quadPictures(t)
	for _, quality := range []string{"90", "lossless"} {
		args := []string{"-f", "image2pipe", "-i", "-", "-c:v", "libwebp", "-f", "webp"}
		if quality == "lossless" {
			args = append(args, "-lossless", "1", "-")
		} else {
			args = append(args, "-quality", quality, "-")
		}
		pics["scene "+quality+".webp"] = ffWith(t, pngOf(t, scene(403, 301)), args...)
	}
	for name, b := range pics {
		if Sniff(b) != WebP {
			continue
		}
		info, err := Header(b)
		if err != nil {
			t.Fatal(name, err)
		}
		w, h := info.Upright()
		region := Region{X: w / 4, Y: h / 4, Width: w / 2, Height: h / 2}
		for _, tg := range []Target{
			{}, {Width: w / 2, Height: h / 2}, {Width: w/4 + 1, Height: h/4 + 1}, {Width: w / 7, Height: h / 7},
			{Width: 2 * w, Height: h + 5, Fit: Letterbox},
			{Width: w / 8, Height: h / 8, Region: region}, {Width: w / 3, Height: h / 3, Region: region, Color: Gray},
		} {
			lib, std := make([]byte, tg.Size(w, h)), make([]byte, tg.Size(w, h))
			if _, err := d.Decode(b, tg, lib); err != nil {
				t.Fatal(name, err)
			}
			j := job{info: info, target: &tg, dst: std}
			if err := j.place(w, h); err != nil {
				t.Fatal(err)
			}
			if err := d.decodeGoWebP(b, &j); err != nil {
				t.Fatal(name, err)
			}
			sum, worst := 0, 0
			for i := range std {
				diff := int(lib[i]) - int(std[i])
				sum += max(diff, -diff)
				worst = max(worst, diff, -diff)
			}
			mean := float64(sum) / float64(len(std))
			meanLimit, worstLimit := 1.0, 12
			if name[:5] != "scene" { // hard edges between pure colours
				meanLimit, worstLimit = 8, 160
			}
			if mean > meanLimit || worst > worstLimit {
				t.Errorf("%s, %+v: differ by %.2f on average, %d at most", name, tg, mean, worst)
			}
		}
	}
}
