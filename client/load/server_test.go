package load_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/jpeg"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/client/load"
	"millrace/config"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// serve runs a server with several models and returns its address.
func serve(t *testing.T) (*server.Server, string) {
	t.Helper()
	return serveWithKey(t, "")
}

// serveWithKey runs such a server; clients need the key unless key is "".
func serveWithKey(t *testing.T, key string) (*server.Server, string) {
	t.Helper()
	s := servertest.Start(t, server.Config{
		HTTP: "127.0.0.1:0", GRPC: server.Off, APIKey: key, Log: config.Log{Level: "error"},
		Models: []workers.Config{
			{Name: "echo", Source: "identity"},
			{Name: "slow", Source: "delay", Instances: 1, Batching: workers.Batching{MaxSize: 4},
				Params: stream.Params{"fixed": "5ms", "per_item": "1ms"}},
			{Name: "motion", Source: "motion"},
		},
	})
	return s.Server, s.Base
}

func TestServer(t *testing.T) {
	s, url := serve(t)
	picture := func(v byte) []byte {
		m := image.NewGray(image.Rect(0, 0, 64, 48))
		for i := range m.Pix {
			m.Pix[i] = v
		}
		var b bytes.Buffer
		if err := jpeg.Encode(&b, m, nil); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	dir := t.TempDir()
	for _, name := range []string{"1.jpg", "2.jpg", "3.jpg"} {
		if err := os.WriteFile(filepath.Join(dir, name), picture(name[0]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sizes := t.TempDir()
	for i, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(sizes, name), make([]byte, 100+i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	one := []stream.Tensor{{Name: "x", Datatype: stream.Uint8, Shape: []int{1, 4}, Data: make([]byte, 4)}}
	native := load.Calls{Call: func(ctx context.Context, _ int, _ *load.Frame) (int, error) {
		r, err := s.Native().Infer(ctx, "echo", one)
		if err != nil {
			return 0, err
		}
		defer r.Release()
		return r.BatchSize, nil
	}}
	opt := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	for _, c := range []struct {
		name  string
		cfg   load.Config
		batch bool // is reported
	}{
		{"ws closed", load.Config{Model: "slow", Options: opt("policy", "every"), Streams: 4, Window: 8, Frames: 50,
			Size: 3000}, true},
		{"ws closed binary", load.Config{Model: "echo", Options: opt("policy", "every", "outputs", "binary"),
			Streams: 4, Window: 8, Frames: 50, Size: 30000}, true},
		{"ws open none", load.Config{Model: "echo", Options: opt("policy", "every", "outputs", "none"), Streams: 4,
			Rate: 100, Frames: 20}, true},
		{"ws pictures", load.Config{Model: "motion", Options: opt("policy", "every"), Streams: 2, Frames: 20,
			Dir: dir}, true},
		{"v1 closed", load.Config{Model: "slow", Protocol: "v1", Options: opt("policy", "every", "codec", "opaque"),
			Streams: load.PerSession + 10, Window: 8, Frames: 5}, true},
		{"v1 open none", load.Config{Model: "echo", Protocol: "v1", Options: opt("policy", "every", "outputs", "none",
			"window", "64", "max_age_ms", "60000", "deadline_ms", "60000"), Streams: 4, Rate: 100, Frames: 20}, true},
		{"v1 pictures", load.Config{Model: "motion", Protocol: "v1", Options: opt("policy", "every"), Streams: 2,
			Frames: 20, Dir: dir}, true},
		{"rest tensor", load.Config{Model: "echo", Protocol: "rest", Tensor: true,
			Options: opt("datatype", "UINT8", "shape", "1,500", "outputs", "binary"), Size: 500, Streams: 2, Window: 3,
			Frames: 30}, false},
		{"rest any tensor", load.Config{Model: "echo", Protocol: "rest", Tensor: true, Any: true, Dir: sizes,
			Streams: 2, Frames: 10}, false},
		{"rest any floats", load.Config{Model: "echo", Protocol: "rest", Tensor: true, Any: true,
			Options: opt("datatype", "FP32"), Frames: 3}, false},
		{"rest any shape", load.Config{Model: "echo", Protocol: "rest", Tensor: true, Any: true,
			Options: opt("shape", "1,4,256"), Frames: 3}, false},
		{"rest picture", load.Config{Model: "motion", Protocol: "rest", File: filepath.Join(dir, "1.jpg"), Frames: 10},
			false},
		{"rest open", load.Config{Model: "echo", Protocol: "rest", Options: opt("outputs", "binary"), Streams: 2,
			Rate: 100, Poisson: true, Frames: 20}, false},
		{"native", load.Config{Target: native, Streams: 4, Window: 4, Frames: 50}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.URL = url
			r := run(t, c.cfg)
			want := uint64(c.cfg.Streams * c.cfg.Frames)
			if c.cfg.Streams == 0 {
				want = uint64(c.cfg.Frames)
			}
			if r.Sent != want || r.Answered != want || !r.OK() || r.FPS <= 0 || (r.MeanBatch > 0) != c.batch {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("overload", func(t *testing.T) {
		r := run(t, load.Config{
			URL: url, Model: "slow", Options: opt("policy", "latest", "codec", "opaque"), Streams: 10, Rate: 200,
			Duration: time.Second, Deadline: time.Second,
		})
		if r.Drops["superseded"] == 0 || r.Failed != 0 || r.Sent+r.Unsent != 2000 || !r.OK() {
			t.Errorf("%+v", r)
		}
		var each uint64
		for _, n := range r.PerStream {
			each += n
		}
		if len(r.PerStream) != 10 || float64(each) != math.Round(r.FPS*r.Measured) {
			t.Errorf("%v answers, %v/s", r.PerStream, r.FPS)
		}
	})
	t.Run("v1 overload", func(t *testing.T) {
		r := run(t, load.Config{
			URL: strings.Replace(url, "http", "ws", 1), Protocol: "v1", Model: "slow",
			Options: opt("policy", "latest", "codec", "opaque"),
			Streams: 10, Rate: 200, Duration: time.Second,
		})
		if r.Drops["superseded"] == 0 || r.Failed != 0 || r.Sent+r.Unsent != 2000 || !r.OK() {
			t.Errorf("%+v", r)
		}
	})
	t.Run("v1 refusals", func(t *testing.T) {
		for want, c := range map[string]load.Config{
			`"none" is not loaded`: {Model: "none"},
			"--option window=many": {Model: "echo", Options: opt("window", "many")},
			"--option shape=1":     {Model: "echo", Options: opt("shape", "1")},
		} {
			c.URL, c.Protocol = url, "v1"
			if _, err := load.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
	})
	t.Run("refusals are counted", func(t *testing.T) {
		r := run(t, load.Config{URL: url, Model: "motion", Protocol: "rest", Options: opt("codec", "jpeg"), Frames: 5})
		if r.Errors["invalid_argument"]+r.Errors["unsupported"] != 5 || !r.OK() {
			t.Errorf("%+v", r)
		}
		r = run(t, load.Config{URL: url, Model: "none", Protocol: "rest", Frames: 2})
		if r.Errors["not_found"] != 2 || !strings.Contains(r.FirstErrors["not_found"], `"none" is not loaded`) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("the first message of each code", func(t *testing.T) {
		for protocol, want := range map[string]string{
			load.RESTProtocol:      "datatype: model echo takes any tensor: set the options datatype and shape",
			load.WebSocketProtocol: "", load.V1Protocol: "",
		} {
			c := load.Config{URL: url, Protocol: protocol, Model: "motion", Streams: 20, Frames: 2} // not a picture
			if want != "" {
				c.Model, c.Tensor = "echo", true
			}
			r := run(t, c)
			var text strings.Builder
			if err := r.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if r.Failed != 40 || len(r.Errors) != 1 || len(r.FirstErrors) != 1 {
				t.Errorf("%s: %+v", protocol, r)
			}
			for code, first := range r.FirstErrors {
				line := fmt.Sprintf("failed       40 %s, the first: %s\n", code, first)
				if r.Errors[code] != 40 || first == "" || want != "" && first != want ||
					!strings.Contains(text.String(), line) {
					t.Errorf("%s: %d %s %q in\n%s", protocol, r.Errors[code], code, first, &text)
				}
			}
		}
	})
}

// TestToken: each protocol sends the key.
func TestToken(t *testing.T) {
	_, url := serveWithKey(t, "secret")
	for _, protocol := range []string{load.WebSocketProtocol, load.V1Protocol, load.RESTProtocol} {
		cfg := load.Config{URL: url, Protocol: protocol, Model: "echo", Frames: 3,
			Options: map[string]string{"outputs": "binary"}}
		if r, err := load.Run(t.Context(), cfg); err == nil && r.Answered > 0 {
			t.Errorf("%s: %d frames were answered without a key", protocol, r.Answered)
		}
		cfg.Token = "secret"
		if r, err := load.Run(t.Context(), cfg); err != nil || r.Answered != 3 {
			t.Errorf("%s: %+v %v", protocol, r, err)
		}
		// the header replaces the token
		cfg.Token, cfg.Header = "wrong", map[string]string{"authorization": "Bearer secret"}
		if r, err := load.Run(t.Context(), cfg); err != nil || r.Answered != 3 {
			t.Errorf("%s with a header: %+v %v", protocol, r, err)
		}
	}
}
