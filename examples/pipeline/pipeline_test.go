// Package pipeline is the example of docs/graphs.md with stages in Python: the parts of a picture found by one stage
// are sent to another stage.
package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"log/slog"
	"net/http"
	"os"
	"testing"

	"millrace/config"
	"millrace/internal/testneeds"
	"millrace/server"
)

// A picture with two bright parts and a picture without bright parts.
func TestStagesInPython(t *testing.T) {
	testneeds.Python(t, "numpy")
	t.Setenv("PATH", "/usr/bin"+string(os.PathListSeparator)+os.Getenv("PATH"))
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
	parts := map[image.Rectangle]color.Color{
		image.Rect(10, 20, 60, 70):     color.RGBA{250, 10, 10, 255},
		image.Rect(100, 120, 160, 200): color.RGBA{10, 10, 240, 255},
	}
	if got, want := ask(t, s.Addr("http"), parts), "[10 20 60 70 100 120 160 200] [red blue]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := ask(t, s.Addr("http"), nil), "[] []"; got != want {
		t.Errorf("without bright parts: %s, want %s", got, want)
	}
}

// ask sends a picture with parts of other colours, and returns the boxes and colours of the parts.
func ask(t *testing.T, addr string, parts map[image.Rectangle]color.Color) string {
	t.Helper()
	picture := image.NewRGBA(image.Rect(0, 0, 320, 240))
	draw.Draw(picture, picture.Rect, image.NewUniform(color.Black), image.Point{}, draw.Src)
	for at, c := range parts {
		draw.Draw(picture, at, image.NewUniform(c), image.Point{}, draw.Src)
	}
	var body bytes.Buffer
	if err := png.Encode(&body, picture); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+addr+"/v2/models/scene/infer", "image/png", &body)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var reply struct {
		Outputs []struct {
			Name string
			Data []any
		}
	}
	if err := json.Unmarshal(text, &reply); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", resp.Status, text)
	}
	found := map[string][]any{}
	for _, o := range reply.Outputs {
		found[o.Name] = o.Data
	}
	return fmt.Sprint(found["boxes"], found["colours"])
}
