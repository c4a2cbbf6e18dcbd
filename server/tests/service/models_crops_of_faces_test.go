package service_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/config"
	"millrace/internal/servertest"
	"millrace/stream"
)

// With a real detector, each box of a picture becomes a picture for the second model: the graph's answer for a box
// equals the second model's answer for the cropped picture.
func TestCropsOfFaces(t *testing.T) {
	pictures, _ := filepath.Glob(fixtures + "/*.jpg")
	if len(pictures) == 0 {
		t.Skipf("no face detector and pictures in %s", fixtures)
	}
	dir, err := filepath.Abs(fixtures)
	if err != nil {
		t.Fatal(err)
	}
	colour, err := filepath.Abs("../../../examples/graph/colour.onnx")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse([]byte(strings.ReplaceAll(detector, "DIR", dir)+`
  - name: colour
    source: `+colour+`
    input: {image: {color: RGB, scale: 0.00392157}}
  - name: both
    source: graph
    steps:
      - {model: faces, input: {input: frame}, output: {boxes: boxes, scores: scores}}
      - {model: colour, input: {image: frame}, output: {scores: shares}, crop: {boxes: boxes, max: 64}}
`), "crops.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, end := servertest.Run(t, cfg.Models...)
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	crops := 0
	for _, path := range pictures {
		picture, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at, _, err := image.DecodeConfig(bytes.NewReader(picture))
		if err != nil {
			t.Fatal(err)
		}
		got := nativeFloats(t, s, "both", picture)
		boxes := rects(got["boxes"])
		if len(boxes) == 0 || len(boxes) != len(rects(nativeFloats(t, s, "faces", picture)["boxes"])) {
			t.Errorf("%s: %d boxes", filepath.Base(path), len(boxes))
		}
		each := len(got["shares"]) / max(len(boxes), 1)
		for i, b := range boxes {
			x, y := max(math.Floor(b[0]), 0), max(math.Floor(b[1]), 0)
			region := stream.Region{X: uint16(x), Y: uint16(y),
				Width:  uint16(min(math.Ceil(b[2]), float64(at.Width)) - x),
				Height: uint16(min(math.Ceil(b[3]), float64(at.Height)) - y)}
			r, err := s.Native().Do(context.Background(), "colour", "",
				stream.Frame{Codec: stream.JPEG, Payload: picture, Region: region})
			if err != nil {
				t.Fatal(err)
			}
			want := floatsOf(r)["scores"]
			if len(want) == 0 || each != len(want) {
				t.Fatalf("%s: box %d has %d numbers, alone it has %d", filepath.Base(path), i, each, len(want))
			}
			for k, v := range want {
				// a picture is decoded once for all of its boxes, at full size
				if math.Abs(float64(v-got["shares"][i*each+k])) > 0.02 {
					t.Errorf("%s: box %d: %v, alone %v", filepath.Base(path), i, got["shares"][i*each:(i+1)*each], want)
					break
				}
			}
			crops++
		}
	}
	t.Log(fmt.Sprint(crops, " crops of ", len(pictures), " pictures"))
}
