package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/client"
	"millrace/server"
	"millrace/stream"
	_ "millrace/workers/motion"
)

func TestMain(m *testing.M) {
	// Goroutines of fasthttp end some seconds after their server.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// serve runs a server with the models, given as for --model, until the test ends
// or stop is called.
func serve(t *testing.T, models ...string) (c *client.Client, stop func()) {
	t.Helper()
	cfg := server.Config{}
	cfg.HTTP, cfg.GRPC, cfg.Limits.MaxMessage = "127.0.0.1:0", server.Off, 1<<20
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
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		t.Fatal(err)
	}
	if c, err = client.New(s.Addr("http")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); stop() })
	for {
		if h, err := c.Health(t.Context()); err != nil {
			t.Fatal(err)
		} else if h.Ready {
			return c, stop
		}
	}
}

func fp32(name string, v ...float32) stream.Tensor {
	return stream.Tensor{Name: name, Datatype: stream.Float32, Shape: []int{len(v)},
		Data: stream.AppendFloat32(nil, v...)}
}

func picture(t *testing.T, w, h int) []byte {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, w, h))
	for i := range m.Pix {
		m.Pix[i] = uint8(i)
	}
	m.SetGray(w/2, h/2, color.Gray{255})
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func wantCode(t *testing.T, err error, code stream.Code) {
	t.Helper()
	if stream.CodeOf(err) != code {
		t.Errorf("got %v (%s), want code %s", err, stream.CodeOf(err), code)
	}
}

func TestModels(t *testing.T) {
	c, stop := serve(t, "same=identity", "eyes=motion,width=64,height=48")
	ctx := t.Context()
	if h, err := c.Health(ctx); err != nil || !h.Live || !h.Ready {
		t.Errorf("%+v, %v", h, err)
	}
	if m, err := c.Server(ctx); err != nil || m.Name != "millrace" {
		t.Errorf("%+v, %v", m, err)
	}
	m, err := c.Metadata(ctx, "eyes", "")
	if err != nil || m.Platform != "motion" || len(m.Inputs) != 1 ||
		!slices.Equal(m.Inputs[0].Shape, []int{-1, 48, 64, 1}) {
		t.Errorf("%+v, %v", m, err)
	}
	_, err = c.Metadata(ctx, "none", "")
	wantCode(t, err, stream.NotFound)
	_, err = c.Metadata(ctx, "a/../b c", "1")
	wantCode(t, err, stream.NotFound)

	for _, want := range []client.Loaded{{Endpoint: "delay", Result: "loaded"},
		{Endpoint: "delay", Result: "unchanged"}} {
		if loaded, err := c.Load(ctx, "delay", stream.Params{"fixed": "1ms", "instances": 2}); err != nil ||
			loaded != want {
			t.Errorf("Load gave %v, %v: want %v", loaded, err, want)
		}
	}
	_, err = c.Load(ctx, "delay", stream.Params{"fixd": "1ms"})
	wantCode(t, err, stream.InvalidArgument)
	_, err = c.Load(ctx, "delay", stream.Params{"f": func() {}})
	wantCode(t, err, stream.InvalidArgument)
	ready, err := c.Models(ctx)
	names := func(es []client.Entry) (out []string) {
		for _, e := range es {
			out = append(out, e.Name)
		}
		slices.Sort(out)
		return out
	}
	if err != nil || !slices.Equal(names(ready), []string{"delay", "eyes", "same"}) {
		t.Errorf("%+v, %v", ready, err)
	}
	if err := c.Unload(ctx, "same"); err != nil {
		t.Error(err)
	}
	ready, _ = c.Models(ctx)
	all, err := c.Index(ctx)
	if err != nil || !slices.Equal(names(ready), []string{"delay", "eyes"}) ||
		!slices.Equal(names(all), []string{"delay", "eyes", "same"}) {
		t.Errorf("ready %+v, all %+v, %v", ready, all, err)
	}
	wantCode(t, c.Unload(ctx, "none"), stream.NotFound)

	stop()
	_, err = c.Health(ctx)
	wantCode(t, err, stream.Unavailable)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "/v2/") {
		t.Errorf("got %v", err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err = c.Health(gone)
	wantCode(t, err, stream.Canceled)
}

func TestInfer(t *testing.T) {
	c, _ := serve(t, "same=identity", "eyes=motion,width=64,height=48", "slow=delay,fixed=20s")
	text := stream.Tensor{Name: "text", Datatype: stream.Bytes, Shape: []int{2},
		Data: []byte("\x02\x00\x00\x00hi\x01\x00\x00\x00!")}
	for _, asJSON := range []bool{false, true} {
		in := []stream.Tensor{fp32("x", 1, 2.5, -3), text, {Name: "none", Datatype: stream.Uint8, Shape: []int{0},
			Data: []byte{}}}
		a, err := c.Infer(t.Context(), "same", client.Request{ID: "7", Inputs: in, JSON: asJSON,
			Params: stream.Params{"n": 3, "f": 0.5, "s": "x", "b": true}})
		if err != nil {
			t.Fatal(err)
		}
		if a.Model != "same" || a.ID != "7" || len(a.Outputs) != 3 || !reflect.DeepEqual(a.Outputs[:2], in[:2]) ||
			len(a.Outputs[2].Data) != 0 {
			t.Errorf("json %v: %+v", asJSON, a)
		}
		if a.Timing.Total <= 0 {
			t.Errorf("no timing: %+v", a.Timing)
		}
		if a, err = c.Infer(t.Context(), "same", client.Request{Inputs: in, JSON: asJSON,
			Outputs: []string{"x"}}); err != nil || len(a.Outputs) != 1 || a.Outputs[0].Name != "x" {
			t.Errorf("json %v, one output: %+v, %v", asJSON, a, err)
		}
		a, err = c.Infer(t.Context(), "eyes", client.Request{Picture: picture(t, 96, 80), JSON: asJSON})
		if err != nil || a.Width != 96 || a.Height != 80 || len(a.Outputs) != 2 || a.Outputs[0].Name != "boxes" {
			t.Errorf("json %v, picture: %+v, %v", asJSON, a, err)
		}
	}
	_, err := c.Infer(t.Context(), "same", client.Request{})
	wantCode(t, err, stream.InvalidArgument)
	_, err = c.Infer(t.Context(), "same", client.Request{Picture: []byte("x"), ID: "7"})
	wantCode(t, err, stream.InvalidArgument)
	_, err = c.Infer(t.Context(), "same", client.Request{Inputs: []stream.Tensor{{Name: "x", Datatype: stream.Float32,
		Shape: []int{2}, Data: []byte("abc")}}})
	wantCode(t, err, stream.InvalidArgument)
	_, err = c.Infer(t.Context(), "same", client.Request{Inputs: []stream.Tensor{fp32("x", 1)},
		Params: stream.Params{"p": []int{1}}})
	wantCode(t, err, stream.InvalidArgument)
	_, err = c.Infer(t.Context(), "eyes", client.Request{Inputs: []stream.Tensor{fp32("x", 1)}})
	wantCode(t, err, stream.InvalidArgument)
	_, err = c.Infer(t.Context(), "none", client.Request{Inputs: []stream.Tensor{fp32("x", 1)}})
	wantCode(t, err, stream.NotFound)
}

func TestStream(t *testing.T) {
	c, _ := serve(t, "same=identity")
	for _, form := range []client.Outputs{client.JSON, client.Binary, client.None} {
		s, err := c.Stream(t.Context(), "same", client.StreamOptions{Codec: "opaque", Outputs: form,
			Policy: stream.Policy{Mode: stream.Every, Window: 4}})
		if err != nil {
			t.Fatal(err)
		}
		const n = 50
		go func() {
			for i := range n {
				if seq, err := s.Send(context.Background(),
					client.Frame{Data: fmt.Appendf(nil, "frame %d", i)}); err != nil || seq != uint64(i) {
					t.Errorf("Send %d: %d, %v", i, seq, err)
				}
			}
		}()
		for i := range n {
			r, ok := <-s.Replies()
			if !ok || r.Seq != uint64(i) || !r.Answered() || r.Model != "same" || r.Sent.IsZero() ||
				r.Got.Before(r.Sent) || r.Batch < 1 || r.Timing.Total <= 0 || r.Timing.Received.IsZero() {
				t.Fatalf("%s, reply %d: %+v, %v", form, i, r, s.Err())
			}
			want := fmt.Sprintf("frame %d", i)
			if form == client.None {
				if r.Outputs != nil {
					t.Errorf("outputs came: %+v", r.Outputs)
				}
			} else if len(r.Outputs) != 1 || string(r.Outputs[0].Data[4:]) != want ||
				binary.LittleEndian.Uint32(r.Outputs[0].Data) != uint32(len(want)) {
				t.Errorf("%s: %+v", form, r.Outputs)
			}
		}
		if err := s.Drain(t.Context()); err != nil || s.Waiting() != 0 {
			t.Errorf("%v, %d wait", err, s.Waiting())
		}
		for range 2 {
			if totals, err := s.Close(context.Background()); err != nil || s.Err() != nil || totals.Results != n {
				t.Errorf("%+v, %v, %v", totals, err, s.Err())
			}
		}
		if _, ok := <-s.Replies(); ok {
			t.Error("a reply after the end")
		}
		_, err = s.Send(context.Background(), client.Frame{Data: []byte("late")})
		wantCode(t, err, stream.Canceled)
	}
}

// A slow model in front of a fast client: each frame ends exactly once, and
// Drain returns when all have.
func TestStreamAccountsForEachFrame(t *testing.T) {
	c, _ := serve(t, "slow=delay,fixed=5ms")
	var mu sync.Mutex
	ends := map[uint64]string{}
	s, err := c.Stream(t.Context(), "slow", client.StreamOptions{Codec: "opaque", OnReply: func(r client.Reply) {
		mu.Lock()
		defer mu.Unlock()
		if ends[r.Seq] != "" {
			t.Errorf("frame %d ended twice", r.Seq)
		}
		ends[r.Seq] = "result"
		if r.Dropped != "" {
			ends[r.Seq] = string(r.Dropped)
		} else if r.Err != nil {
			ends[r.Seq] = r.Err.Error()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for range 100 {
				if _, err := s.Send(context.Background(), client.Frame{Data: []byte("x")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	senders.Wait()
	if err := s.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _ = s.Close(context.Background())
	count := map[string]int{}
	for _, e := range ends {
		count[e]++
	}
	if len(ends) != 400 || count["result"] == 0 || count["superseded"] == 0 || count["result"]+count["superseded"]+
		count["overtaken"] != 400 {
		t.Errorf("%d frames ended: %v", len(ends), count)
	}
}

func TestStreamRefused(t *testing.T) {
	c, _ := serve(t, "same=identity", "eyes=motion")
	_, err := c.Stream(t.Context(), "none", client.StreamOptions{})
	wantCode(t, err, stream.NotFound)
	_, err = c.Stream(t.Context(), "same", client.StreamOptions{Codec: "h265"})
	wantCode(t, err, stream.InvalidArgument)
	_, err = c.Stream(t.Context(), "same", client.StreamOptions{Policy: stream.Policy{Window: -1}})
	wantCode(t, err, stream.InvalidArgument)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Stream(gone, "same", client.StreamOptions{})
	wantCode(t, err, stream.Canceled)

	// A frame's error ends the frame, not the stream.
	s, err := c.Stream(t.Context(), "eyes", client.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	for _, frame := range [][]byte{[]byte("no picture"), picture(t, 32, 32)} {
		if _, err := s.Send(context.Background(), client.Frame{Data: frame}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = s.Send(t.Context(), client.Frame{Data: make([]byte, 1<<20+1)})
	wantCode(t, err, stream.TooLarge)
	got := []client.Reply{<-s.Replies(), <-s.Replies()}
	slices.SortFunc(got, func(a, b client.Reply) int { return int(a.Seq) - int(b.Seq) })
	wantCode(t, got[0].Err, stream.Unsupported)
	if !got[1].Answered() || got[1].Width != 32 || len(got[1].Outputs) != 2 {
		t.Errorf("%+v", got[1])
	}
}

// Err, Send and Drain return the server's reason for ending a session.
func TestStreamEndedByServer(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(c *client.Client, s *client.Stream, stop func())
		code stream.Code
	}{
		"drain": {func(_ *client.Client, _ *client.Stream, stop func()) { stop() }, stream.Draining},
		"unload": {func(c *client.Client, _ *client.Stream, _ func()) {
			_ = c.Unload(context.Background(), "same")
		}, stream.Unloaded},
	} {
		t.Run(name, func(t *testing.T) {
			cl, stop := serve(t, "same=identity")
			s, err := cl.Stream(t.Context(), "same", client.StreamOptions{Codec: "opaque"})
			if err != nil {
				t.Fatal(err)
			}
			// the reply shows that the session works
			if _, err := s.Send(context.Background(), client.Frame{Data: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			<-s.Replies()
			c.end(cl, s, stop)
			<-s.Done()
			wantCode(t, s.Err(), c.code)
			_, err = s.Send(context.Background(), client.Frame{Data: []byte("x")})
			wantCode(t, err, c.code)
			_, _ = s.Close(context.Background())
			wantCode(t, s.Err(), c.code)
		})
	}
}

// The end of the context and Close both end a stream with unreceived replies, and its frames in flight end.
func TestStreamAbandoned(t *testing.T) {
	c, _ := serve(t, "slow=delay,fixed=5s", "same=identity")
	ctx, cancel := context.WithCancelCause(t.Context())
	s, err := c.Stream(ctx, "slow", client.StreamOptions{Codec: "opaque"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Send(context.Background(), client.Frame{Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	short, end := context.WithCancel(t.Context())
	end()
	if err := s.Drain(short); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "1 frames") {
		t.Errorf("Drain: %v", err)
	}
	why := errors.New("no more")
	cancel(why)
	if err := s.Drain(t.Context()); err != nil || !errors.Is(s.Err(), why) {
		t.Errorf("Drain: %v; %v", err, s.Err())
	}
	if r, ok := <-s.Replies(); !ok || !r.Lost {
		t.Errorf("the frame on its way: %+v", r)
	}
	_, _ = s.Close(context.Background())

	s, err = c.Stream(t.Context(), "same", client.StreamOptions{Codec: "opaque", Buffer: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := s.Send(context.Background(), client.Frame{Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = s.Close(short) // does not wait for the replies to be received
	wantCode(t, err, stream.Canceled)
	<-s.Done()
}

// Replies of a server other than Millrace are errors.
func TestForeignServers(t *testing.T) {
	for _, addr := range []string{"", "http://", "ftp://x", "http://x?y", "://", "x y", "unix:", "unix:s", "unix:@s"} {
		if _, err := client.New(addr); stream.CodeOf(err) != stream.InvalidArgument {
			t.Errorf("%q: %v", addr, err)
		}
	}
	if c, err := client.New("0.0.0.0:8000"); err != nil || c.Addr() != "http://127.0.0.1:8000" {
		t.Errorf("%v, %v", c, err)
	}
	if c, err := client.New("unix:/run/s"); err != nil || c.Addr() != "unix:/run/s" {
		t.Errorf("%v, %v", c, err)
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/infer") {
			w.Header().Set("Inference-Header-Content-Length", "99")
		}
		if strings.Contains(r.URL.Path, "proxy") {
			w.WriteHeader(http.StatusBadGateway)
		}
		_, _ = w.Write([]byte("<html>"))
	}))
	defer h.Close()
	c, err := client.New(h.URL + "/prefix/")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	_, err = c.Metadata(ctx, "m", "")
	wantCode(t, err, stream.Internal)
	_, err = c.Metadata(ctx, "proxy", "")
	wantCode(t, err, stream.Unavailable)
	_, err = c.Index(ctx)
	wantCode(t, err, stream.Internal)
	_, err = c.Load(ctx, "m", nil)
	wantCode(t, err, stream.Internal)
	_, err = c.Infer(ctx, "m", client.Request{Inputs: []stream.Tensor{fp32("x", 1)}})
	wantCode(t, err, stream.Internal)
	_, err = c.Stream(ctx, "m", client.StreamOptions{})
	if err == nil {
		t.Error("a stream to something else")
	}

	// A server that closes the connection during the handshake.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	if c, err = client.New(ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	_, err = c.Stream(ctx, "m", client.StreamOptions{})
	wantCode(t, err, stream.Unavailable)
}

func TestTimingAdds(t *testing.T) {
	c, _ := serve(t, "slow=delay,fixed=20ms,per_item=0s")
	a, err := c.Infer(t.Context(), "slow", client.Request{Inputs: []stream.Tensor{fp32("x", 1)}})
	if err != nil {
		t.Fatal(err)
	}
	if a.Timing.Run < 20*time.Millisecond || a.Timing.Total < a.Timing.Run {
		t.Errorf("%+v", a.Timing)
	}
}
