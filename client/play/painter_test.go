package play

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/client"
	"millrace/internal/child"
	"millrace/internal/clip"
	"millrace/internal/testneeds"
	"millrace/internal/video"
	"millrace/stream"
)

func jpegOf(t *testing.T, w, h int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, w, h)), nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// times returns the times of a video's frames, by ffprobe.
func times(t *testing.T, file string) (list []time.Duration) {
	t.Helper()
	out, err := exec.Command(testneeds.Program(t, "ffprobe"), "-v", "error", "-show_entries", "frame=pts_time", "-of",
		"csv=p=0", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, s := range strings.Fields(string(out)) {
		var sec float64
		if _, err := fmt.Sscanf(s, "%f", &sec); err != nil {
			t.Fatalf("ffprobe said %q", s)
		}
		list = append(list, time.Duration(sec*1e9))
	}
	return list
}

func sizeOf(t *testing.T, file string) (w, h int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return c.Width, c.Height
}

func TestOverlay(t *testing.T) {
	if testing.Short() {
		t.Skip("draws a whole video")
	}
	c, stop := serve(t, "eyes=motion,width=80,height=60", "slow=delay,fixed=50ms,per_item=0ms,batching.max_size=1")
	defer stop()
	dir := t.TempDir()
	file, err := clip.Write(t.Context(), clip.Settings{Width: 320, Height: 240, Seconds: 2, FPS: 10, Seed: 1},
		testneeds.Program(t, "ffmpeg"), dir, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{
		{Model: "eyes", Policy: stream.Policy{Mode: stream.Every}},
		{Model: "slow", Policy: stream.Policy{Mode: stream.Latest}}, // drops most
	} {
		o.Client, o.Source, o.Fast = c, file, true
		o.Overlay, o.Picture = filepath.Join(dir, o.Model+".mp4"), filepath.Join(dir, o.Model+".png")
		s, err := Run(t.Context(), o)
		if err != nil || s.Frames != 20 || s.Overlay != o.Overlay || s.Picture != o.Picture ||
			(o.Model == "slow") != (s.Drops[stream.Superseded] > 0) {
			t.Errorf("%+v, %v", s, err)
		}
		got := times(t, o.Overlay)
		if len(got) != s.Frames {
			t.Fatalf("%s: %d pictures of %d frames", o.Model, len(got), s.Frames)
		}
		for i, at := range got {
			if d := at - time.Duration(i)*100*time.Millisecond; d.Abs() > 100*time.Microsecond {
				t.Errorf("%s: frame %d is at %v", o.Model, i, at)
			}
		}
		if w, h := sizeOf(t, o.Picture); w*3 != h*4 || w < 320 {
			t.Errorf("the picture is %dx%d", w, h)
		}
	}

	// The end of the context leaves a complete video.
	ctx, cancel := context.WithCancel(t.Context())
	ended := filepath.Join(dir, "ended.mp4")
	n := 0
	s, err := Run(ctx, Options{Client: c, Model: "eyes", Source: file, Loop: true, Fast: true, Overlay: ended,
		OnReply: func(Reply) {
			if n++; n == 25 {
				cancel()
			}
		}})
	if got := times(t, ended); err != nil || len(got) != s.Frames || s.Frames < 25 {
		t.Errorf("%d pictures, %+v, %v", len(got), s, err)
	}

	// An error of writing ends the run, and ffmpeg has ended.
	none := filepath.Join(dir, "none", "x.mp4")
	s, err = Run(t.Context(), Options{Client: c, Model: "eyes", Source: file, Loop: true, Fast: true, Overlay: none})
	if err == nil || !strings.Contains(err.Error(), none) || s.Overlay != "" || child.LiveChildren() != 0 {
		t.Errorf("%+v, %v, %d children", s, err, child.LiveChildren())
	}
	for want, o := range map[string]Options{
		"a video is a video": {Overlay: "x.png"},
		"x.avi: want a name": {Overlay: "x.avi"},
		"x.gif: want a name": {Picture: "x.gif"},
	} {
		o.Client, o.Model, o.Source = c, "eyes", file
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestPictureAddress(t *testing.T) {
	c, stop := serve(t, "eyes=motion", "same=identity")
	defer stop()
	picture := jpegOf(t, 64, 48)
	mux := http.NewServeMux()
	mux.HandleFunc("/now.jpg", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(picture) })
	mux.HandleFunc("/shut.jpg", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	web := httptest.NewServer(mux)
	defer web.Close()
	file := filepath.Join(t.TempDir(), "seen.png")
	var got []byte
	s, err := Run(t.Context(), Options{Client: c, Model: "same", Source: web.URL + "/now.jpg?n=1", Overlay: file,
		OnReply: func(r Reply) {
			got = r.Outputs[0].Data[4:]
		}})
	if err != nil || s.Results != 1 || s.Picture != file || !bytes.Equal(got, picture) {
		t.Errorf("%+v, %v: not sent as it is: %d bytes of %d", s, err, len(got), len(picture))
	}
	if w, h := sizeOf(t, file); w != 256 || h != 192 {
		t.Errorf("the overlay is %dx%d", w, h)
	}
	if _, err := Run(t.Context(), Options{Client: c, Model: "same", Source: web.URL + "/now.jpg",
		Overlay: "x.mp4"}); err == nil || !strings.Contains(err.Error(), "a picture is a picture") {
		t.Errorf("got %v", err)
	}
	for path, kind := range map[string]video.Kind{"/none.jpg": video.NotFound, "/shut.jpg": video.Auth} {
		address := strings.Replace(web.URL, "http://", "http://me:geheim@", 1) + path
		_, err := Run(t.Context(), Options{Client: c, Model: "same", Source: address})
		if video.KindOf(err) != kind || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", path, err)
		}
	}
	web.Close()
	if _, err := Run(t.Context(), Options{Client: c, Model: "same", Source: web.URL + "/now.jpg"}); video.KindOf(
		err) != video.Refused {
		t.Errorf("got %v", err)
	}
}

func answer(seq uint64, boxes ...float32) *client.Reply {
	return &client.Reply{Seq: seq, Outputs: []stream.Tensor{
		{Name: "boxes", Datatype: stream.Float32, Shape: []int{1, len(boxes) / 4, 4},
			Data: stream.AppendFloat32(nil, boxes...)},
	}}
}

// A frame without a result shows the boxes of the previous frame, and frames are drawn in the order of sending.
func TestDropped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.mp4")
	r := newPainter(t.Context(), file, "", 10, 1)
	for i := range 4 {
		if err := r.add(t.Context(), nil, uint64(i), jpegOf(t, 640, 480), 0); err != nil { // the same time for all
			t.Fatal(err)
		}
	}
	r.ending(&client.Reply{Seq: 1, Dropped: stream.Superseded})
	r.ending(&client.Reply{Seq: 2, Err: errors.New("no")})
	r.ending(answer(0, 100, 100, 200, 200)) // 3 is lost
	if err := r.finish(); err != nil {
		t.Fatal(err)
	}
	if c := r.canvas.RGBAAt(101, 150); c.R < 100 { // of the last frame; the picture is black
		t.Errorf("no box is at the edge: %v", c)
	}
	if got := times(t, file); len(got) != 4 {
		t.Errorf("%v", got)
	}
}

// The picture is the frame with the most boxes.
func TestBest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.png")
	r := newPainter(t.Context(), "", file, 0, 1)
	for i, boxes := range [][]float32{{}, {0, 0, 50, 50, 300, 300, 400, 400}, {500, 10, 600, 100}} {
		if err := r.add(t.Context(), nil, uint64(i), jpegOf(t, 640, 480), 0); err != nil {
			t.Fatal(err)
		}
		r.ending(answer(uint64(i), boxes...))
	}
	if err := r.finish(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if red, _, _, _ := img.At(301, 350).RGBA(); red>>8 < 100 {
		t.Error("the second box is missing")
	}

	// An unanswered frame is not kept.
	r = newPainter(t.Context(), "", file, 0, 1)
	if err := r.add(t.Context(), nil, 0, jpegOf(t, 64, 48), 0); err != nil {
		t.Fatal(err)
	}
	if err := r.finish(); err == nil || !strings.Contains(err.Error(), "no frame was answered") {
		t.Errorf("got %v", err)
	}
}

// TestPendingBound: at the bound, add waits until a frame was drawn.
func TestPendingBound(t *testing.T) {
	frame := jpegOf(t, 16, 16)
	synctest.Test(t, func(t *testing.T) {
		r := newPainter(t.Context(), "", filepath.Join(t.TempDir(), "x.png"), 0, 1)
		for i := range maxPending {
			if err := r.add(t.Context(), nil, uint64(i), frame, 0); err != nil {
				t.Fatal(err)
			}
		}
		held := make(chan error, 1)
		go func() { held <- r.add(t.Context(), nil, maxPending, frame, 0) }()
		synctest.Wait()
		select {
		case err := <-held:
			t.Fatalf("held past the bound: %v", err)
		default:
		}
		r.ending(&client.Reply{Seq: 1}) // not the oldest
		synctest.Wait()
		if len(held) != 0 {
			t.Fatal("there was room before the oldest had ended")
		}
		r.ending(&client.Reply{Seq: 0})
		if err := <-held; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.add(t.Context(), nil, maxPending+1, frame, 0); err != nil {
			t.Error(err)
		}
		if err := r.add(ctx, nil, maxPending+2, frame, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if err := r.finish(); err != nil {
			t.Error(err)
		}
	})
}

// The overlay of a video with non-square pixels is as wide as in a video player, whatever the scaled size.
func TestPixelsThatAreNotSquare(t *testing.T) {
	for _, c := range []struct {
		info video.Info
		want image.Point
	}{
		{video.Info{Width: 90, Height: 72, SourceWidth: 90, SourceHeight: 72, PixelAspect: 64.0 / 45},
			image.Pt(512, 288)},
		{video.Info{Width: 80, Height: 72, SourceWidth: 90, SourceHeight: 72, PixelAspect: 64.0 / 45},
			image.Pt(512, 288)},
		{video.Info{Width: 400, Height: 100, SourceWidth: 400, SourceHeight: 100, PixelAspect: 0.5},
			image.Pt(800, 400)},
		{video.Info{Width: 90, Height: 72, SourceWidth: 90, SourceHeight: 72}, image.Pt(360, 288)},
	} {
		r := newPainter(t.Context(), "", filepath.Join(t.TempDir(), "x.png"), 0, new(Options).frameAspect(c.info))
		w, h := c.info.Width, c.info.Height
		if err := r.add(t.Context(), nil, 0, jpegOf(t, w, h), 0); err != nil {
			t.Fatal(err)
		}
		r.ending(answer(0, float32(w)/2, 4, float32(w)-4, float32(h)-4))
		if err := r.finish(); err != nil {
			t.Fatal(err)
		}
		if got := r.canvas.Rect.Size(); got != c.want {
			t.Errorf("%+v is drawn as %v, want %v", c.info, got, c.want)
		}
		if at := r.canvas.RGBAAt(c.want.X/2+1, c.want.Y/2); at.R < 100 && at.G < 100 && at.B < 100 {
			t.Errorf("%+v: no edge of the box in the middle: %v", c.info, at)
		}
	}
}
