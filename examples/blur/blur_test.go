// Package blur is the example of docs/graphs.md with a class that gets the picture and the boxes of another step.
package blur

import (
	"bytes"
	"context"
	"encoding/json"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"millrace/config"
	"millrace/internal/testneeds"
	"millrace/server"
)

// A picture with two bright parts, of a size different from any model's, and a picture without bright parts.
func TestPictureAndBoxes(t *testing.T) {
	t.Setenv("PATH", filepath.Dir(testneeds.Python(t, "numpy"))+string(os.PathListSeparator)+os.Getenv("PATH"))
	cfg, err := config.Load("config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg.HTTP, cfg.GRPC, cfg.Log.Level = "127.0.0.1:0", "off", "error"
	slog.SetDefault(slog.New(slog.DiscardHandler))
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	checkMetadata(t, s.Addr("http"))
	// Half of each part is black, so that the mean has half of the part's colour.
	parts := map[image.Rectangle]color.RGBA{
		image.Rect(10, 20, 60, 70):     {250, 10, 10, 255},
		image.Rect(100, 120, 160, 200): {10, 10, 240, 255},
	}
	want := image.NewRGBA(image.Rect(0, 0, 330, 250))
	draw.Draw(want, want.Rect, image.NewUniform(color.Black), image.Point{}, draw.Src)
	none := image.NewRGBA(want.Rect)
	draw.Draw(none, none.Rect, image.NewUniform(color.Black), image.Point{}, draw.Src)
	sent := image.NewRGBA(want.Rect)
	draw.Draw(sent, sent.Rect, image.NewUniform(color.Black), image.Point{}, draw.Src)
	for at, c := range parts {
		mean := color.RGBA{c.R / 2, c.G / 2, c.B / 2, 255}
		draw.Draw(want, at, image.NewUniform(mean), image.Point{}, draw.Src)
		for y := at.Min.Y; y < at.Max.Y; y++ {
			for x := at.Min.X; x < at.Max.X; x++ {
				if (x+y)%2 == 0 {
					sent.Set(x, y, c)
				}
			}
		}
	}
	// The corners of each part are bright, so that its box is the whole part.
	for name, c := range map[string][2]*image.RGBA{"two parts": {sent, want}, "none": {none, none}} {
		got := ask(t, s.Addr("http"), c[0])
		for i := range 330 * 250 {
			for k := range 3 {
				if a, b := got[3*i+k], float64(c[1].Pix[4*i+k]); a != b {
					t.Fatalf("%s: the pixel %d,%d has %v in channel %d, want %v", name, i%330, i/330, a, k, b)
				}
			}
		}
	}
}

// checkMetadata compares the metadata with the form of the clients' pictures and boxes.
func checkMetadata(t *testing.T, addr string) {
	t.Helper()
	for model, want := range map[string]string{
		"blur": `"inputs":[{"name":"image","datatype":"UINT8","shape":[-1,-1,3]},{"name":"boxes",` +
			`"datatype":"FP32","shape":[-1,4]}],"outputs":[{"name":"output","datatype":"UINT8","shape":[-1,-1,3]}]`,
		"hidden": `"inputs":[{"name":"frame","datatype":"UINT8","shape":[-1,-1,3]}],"outputs":[{"name":"boxes",` +
			`"datatype":"FP32","shape":[-1,4]},{"name":"picture","datatype":"UINT8","shape":[-1,-1,3]}]`,
	} {
		resp, err := http.Get("http://" + addr + "/v2/models/" + model)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !bytes.Contains(got, []byte(want)) {
			t.Errorf("%s is %s, want %s (%v)", model, got, want, err)
		}
	}
}

// ask sends a picture, and returns the pixels of the answer.
func ask(t *testing.T, addr string, picture image.Image) []float64 {
	t.Helper()
	var body bytes.Buffer
	if err := png.Encode(&body, picture); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+addr+"/v2/models/hidden/infer", "image/png", &body)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var reply struct {
		Outputs []struct {
			Name  string
			Shape []int
			Data  []float64
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %v", resp.Status, err)
	}
	for _, o := range reply.Outputs {
		if o.Name == "picture" && len(o.Shape) == 3 && o.Shape[0] == 250 && o.Shape[1] == 330 {
			return o.Data
		}
	}
	t.Fatalf("the answer has no picture of 330 x 250")
	return nil
}
