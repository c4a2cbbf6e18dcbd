package play

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/jpeg"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/client"
	"millrace/internal/clip"
	"millrace/internal/testneeds"
	"millrace/internal/video"
	"millrace/server"
	"millrace/stream"
)

func TestMain(m *testing.M) {
	// Goroutines of fasthttp end some seconds after their server.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

func serve(t *testing.T, models ...string) (c *client.Client, stop func()) {
	t.Helper()
	cfg := server.Config{}
	cfg.HTTP, cfg.GRPC = "127.0.0.1:0", server.Off
	if err := cfg.AddModels(models...); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.Ready()
	if c, err = client.New(s.Addr("http")); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(c.Close)
	return c, stop
}

func TestRun(t *testing.T) {
	c, stop := serve(t, "eyes=motion,width=80,height=60")
	defer stop()
	file, err := clip.Write(t.Context(), clip.Settings{Width: 320, Height: 240, Seconds: 1, FPS: 10, Seed: 1},
		testneeds.Program(t, "ffmpeg"), t.TempDir(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var pts []time.Duration
	s, err := Run(t.Context(), Options{Client: c, Model: "eyes", Source: file, Fast: true,
		Policy: stream.Policy{Mode: stream.Every}, OnReply: func(r Reply) {
			pts = append(pts, r.PTS)
			if r.Width != 80 || r.Height != 60 {
				t.Errorf("sent as %dx%d", r.Width, r.Height)
			}
		}})
	if err != nil || s.Frames != 10 || s.Results != 10 || s.Lost != 0 || s.Width != 80 || s.Rate != 10 {
		t.Errorf("%+v, %v", s, err)
	}
	for i, p := range pts {
		if p != time.Duration(i)*100*time.Millisecond {
			t.Errorf("frame %d has time %v", i, p)
		}
	}

	// The end of the context ends the video; no frame is lost.
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	s, err = Run(ctx, Options{Client: c, Model: "eyes", Source: file, Loop: true, Fast: true, OnReply: func(Reply) {
		if n++; n == 25 {
			cancel()
		}
	}})
	if err != nil || s.Frames < 25 || s.Lost != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err = Run(ctx, Options{Client: c, Model: "eyes", Source: file}); err == nil && s.Frames > 0 {
		t.Errorf("after the end: %+v", s)
	}

	_, err = Run(t.Context(), Options{Client: c, Model: "nothing", Source: file})
	if stream.CodeOf(err) != stream.NotFound {
		t.Errorf("got %v", err)
	}
	text := filepath.Join(t.TempDir(), "text.mp4")
	if err := os.WriteFile(text, []byte("not a video"), 0o600); err != nil {
		t.Fatal(err)
	}
	from := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(file))))
	defer from.Close()
	address := strings.Replace(from.URL, "://", "://viewer:geheim%23@", 1) + "/" + filepath.Base(file) + "?token=geheim"
	if s, err = Run(t.Context(), Options{Client: c, Model: "eyes", Source: address}); err != nil || s.Frames != 10 ||
		strings.Contains(s.Source, "geheim") {
		t.Errorf("%+v, %v", s, err)
	}
	var ve *video.Error
	if _, err = Run(t.Context(), Options{Client: c, Model: "eyes", Source: text}); !errors.As(err, &ve) {
		t.Errorf("got %v", err)
	}
}

func TestPicture(t *testing.T) {
	c, stop := serve(t, "eyes=motion", "same=identity")
	defer stop()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 64, 48)), nil); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "picture")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []byte
	s, err := Run(t.Context(), Options{Client: c, Model: "same", Source: file, OnReply: func(r Reply) {
		got = r.Outputs[0].Data[4:]
	}})
	if err != nil || s.Frames != 1 || s.Results != 1 || !bytes.Equal(got, b.Bytes()) {
		t.Errorf("%+v, %v, %d bytes of %d", s, err, len(got), b.Len())
	}
}

func TestSizes(t *testing.T) {
	for _, c := range [][6]int{
		{640, 480, 320, 240, 320, 240}, {1920, 1080, 224, 224, 400, 224}, {1080, 1920, 224, 224, 224, 400},
		{320, 240, 320, 240, 0, 0}, {100, 5000, 320, 240, 0, 0}, {1000, 999, 33, 33, 34, 34},
	} {
		w, h := cover(c[0], c[1], c[2], c[3])
		if w != c[4] || h != c[5] {
			t.Errorf("%v: %dx%d", c, w, h)
		}
	}
}

// Frames of Next are sent unchanged, at most Window frames are in flight, and OnSend is called for each frame before
// its reply.
func TestNext(t *testing.T) {
	c, stop := serve(t, "same=identity")
	defer stop()
	const frames, window = 20, 3
	var mu sync.Mutex
	sent, ended, most, n := 0, 0, 0, 0
	s, err := Run(t.Context(), Options{Client: c, Model: "same", Source: "elsewhere", Fast: true, Window: window,
		Codec: "opaque", Policy: stream.Policy{Mode: stream.Every},
		Next: func() ([]byte, time.Duration, error) {
			if n == frames {
				return nil, 0, io.EOF
			}
			n++
			return []byte{byte(n)}, time.Duration(n) * time.Second, nil
		},
		OnSend: func(seq uint64, pts time.Duration, frame []byte) {
			mu.Lock()
			defer mu.Unlock()
			sent++
			most = max(most, sent-ended)
			if int(seq)+1 != n || pts != time.Duration(n)*time.Second || frame[0] != byte(n) {
				t.Errorf("frame %d: number %d at %v, %v", n, seq, pts, frame)
			}
		},
		OnReply: func(r Reply) {
			mu.Lock()
			defer mu.Unlock()
			ended++
			if int(r.Seq) >= sent || r.PTS != time.Duration(r.Seq+1)*time.Second {
				t.Errorf("reply %d at %v after %d frames", r.Seq, r.PTS, sent)
			}
		}})
	// The window has a free slot before OnReply is called, so that one more frame may be counted.
	if err != nil || s.Frames != frames || s.Results != frames || most > window+1 || s.Source != "elsewhere" {
		t.Errorf("%+v, %v; %d at once", s, err, most)
	}
	broken := errors.New("broken")
	s, err = Run(t.Context(), Options{Client: c, Model: "same", Next: func() ([]byte, time.Duration, error) {
		return nil, 0, broken
	}})
	if !errors.Is(err, broken) || s.Frames != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// The loss of a connection loses the frames in flight and does not end the run.
func TestLostConnection(t *testing.T) {
	c, stop := serve(t, "same=identity")
	defer stop()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var proxies sync.WaitGroup
	proxies.Go(func() {
		for first := true; ; first = false {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", strings.TrimPrefix(c.Addr(), "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			most := int64(math.MaxInt64)
			if first {
				most = 50000 // in the middle of a frame
			}
			end := sync.OnceFunc(func() { _ = near.Close(); _ = far.Close() })
			proxies.Go(func() { _, _ = io.CopyN(far, near, most); end() })
			proxies.Go(func() { _, _ = io.Copy(near, far); end() })
		}
	})
	defer proxies.Wait()
	defer ln.Close()
	via, err := client.New(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer via.Close()
	n := 0
	next := func() ([]byte, time.Duration, error) {
		if n++; n > 100 {
			return nil, 0, io.EOF
		}
		return make([]byte, 1000), 0, nil
	}
	s, err := Run(t.Context(), Options{Client: via, Model: "same", Source: "zeros", Next: next, Codec: "opaque",
		Fast: true, Policy: stream.Policy{Mode: stream.Every}})
	if err != nil || s.Frames != 100 || s.Results+s.Lost != 100 || s.Lost == 0 || s.Lost > stream.DefaultWindowEvery {
		t.Errorf("%+v, %v", s, err)
	}
}
