package frames_test

import (
	"bytes"
	"context"
	"encoding/json"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/config"
	"millrace/internal/servertest"
	"millrace/internal/testneeds"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// Over each protocol an unreadable picture gets an error that names the frame, and the next picture is answered.
func TestPicturesOverProtocols(t *testing.T) {
	s, stop := servertest.Run(t, workers.Config{Name: "find", Source: "motion",
		Policy: stream.Policy{Mode: stream.Every}})
	good := servertest.JPEG(t, 64, 48)
	ws := servertest.Dial(t, s, "/v2/models/find/stream")
	defer ws.Close()
	rest := func(b []byte) string {
		r, err := http.Post("http://"+s.Addr("http")+"/v2/models/find/infer", "image/jpeg", bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		var reply bytes.Buffer
		_, _ = reply.ReadFrom(r.Body)
		return reply.String()
	}
	native := func(b []byte) string {
		r, err := s.Native().InferBytes(context.Background(), "find", stream.JPEG, b)
		if err != nil {
			return string(stream.CodeOf(err)) + " " + err.Error()
		}
		defer r.Release()
		return r.Outputs[0].Name
	}
	overWS := func(b []byte) string { return servertest.Ask(t, ws, websocket.BinaryMessage, b) }
	for _, c := range []struct {
		name string
		b    []byte
		want []string // one text per protocol
	}{
		{"one pixel", servertest.JPEG(t, 1, 1), []string{"boxes"}},
		{"30,000 squared", servertest.HugePNG(), []string{"too_large"}},
		{"nothing", nil, []string{"empty", "unsupported"}},
		{"cut", good[:len(good)/3], []string{"frame: "}},
		{"another size in its header", bytes.Replace(good, []byte{0, 48, 0, 64}, []byte{0x1f, 0x40, 0x1f, 0x40}, 1),
			[]string{"frame: "}},
		{"a GIF", []byte("GIF89a\x01\x00\x01\x00\x00\x00\x00;"), []string{"unsupported", "not a JPEG, PNG or WebP"}},
	} {
		for protocol, send := range map[string]func([]byte) string{"REST": rest, "WebSocket": overWS,
			"native": native} {
			got, ok := send(c.b), false
			for _, w := range c.want {
				ok = ok || strings.Contains(got, w)
			}
			if !ok {
				t.Errorf("%s over %s: %s", c.name, protocol, got)
			}
			if got := send(good); !strings.Contains(got, "boxes") {
				t.Errorf("after %s over %s: %s", c.name, protocol, got)
			}
		}
	}
	_ = ws.Close()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if m := s.Memory().Stats(); m.Leases != 0 {
		t.Errorf("%d leases left", m.Leases)
	}
}

// Pictures and videos of any kind are pulled from their address.
func TestPullsOfAnyKind(t *testing.T) {
	dir := t.TempDir()
	var p bytes.Buffer
	if err := png.Encode(&p, image.NewGray(image.Rect(0, 0, 80, 60))); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"a.jpg": servertest.JPEG(t, 80, 60), "a.png": p.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, codec := range map[string][]string{"a.webm": {"-c:v", "libvpx"}, "a.mjpeg": {"-c:v", "mjpeg"},
		"a.mkv": {"-c:v", "libx264"}, "a.avi": {"-c:v", "mpeg4"}} {
		args := append([]string{"-v", "error", "-f", "lavfi", "-i", "testsrc2=size=80x60:rate=10:duration=1"}, codec...)
		if out, err := exec.Command(testneeds.Program(t, "ffmpeg"),
			append(args, filepath.Join(dir, name))...).CombinedOutput(); err != nil {
			t.Fatalf("ffmpeg: %v\n%s", err, out)
		}
	}
	files := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer files.Close()
	s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Sources: config.Sources{AllowPrivate: true},
		Models:  []workers.Config{{Name: "find", Source: "motion", Policy: stream.Policy{Mode: stream.Every}}}})
	for name, frames := range map[string]int{"a.jpg": 1, "a.png": 1, "a.webm": 10, "a.mjpeg": 10, "a.mkv": 10,
		"a.avi": 10} {
		c := servertest.Dial(t, s, "/v2/models/find/stream")
		got := 0
		for reply := servertest.Ask(t, c, websocket.TextMessage, []byte(`{"url":"`+files.URL+"/"+name+`"}`)); ; {
			var m struct {
				Done   bool
				Frames int
				Error  any
				Drop   string `json:"dropped"` // a video without a length is considered live
				Width  int    `json:"source_width"`
			}
			if err := json.Unmarshal([]byte(reply), &m); err != nil || m.Error != nil {
				t.Errorf("%s: %s", name, reply)
				break
			}
			if m.Done {
				if got != frames || m.Frames != frames {
					t.Errorf("%s: %d replies, %d frames, want %d", name, got, m.Frames, frames)
				}
				break
			}
			if m.Width != 80 && m.Drop == "" {
				t.Errorf("%s: %s", name, reply)
			}
			got++
			_, b, err := c.ReadMessage()
			if err != nil {
				t.Fatal(err)
			}
			reply = string(b)
		}
		_ = c.Close()
	}
	files.CloseClientConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
}
