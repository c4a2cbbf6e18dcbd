package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/config"
	"millrace/examples/spotter"
	"millrace/internal/clip/truth"
	"millrace/internal/codec"
	"millrace/internal/servertest"
	"millrace/internal/video"
	"millrace/server"
	"millrace/workers"
)

// The digits of the example's clip keep their ids while moving.
func TestTrackedDigits(t *testing.T) {
	if testing.Short() {
		t.Skip("sends a whole clip")
	}
	dir := t.TempDir()
	for name, b := range map[string][]byte{"spotter.onnx": spotter.Model, "clip.mp4": spotter.Clip} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	real, err := truth.Read(bytes.NewReader(spotter.Truth))
	if err != nil {
		t.Fatal(err)
	}
	m, err := config.ParseModel("spotter=" + filepath.Join(dir, "spotter.onnx") +
		",input.image.scale=0.00392157,output.boxes.threshold=0.3,output.track=true,output.track_score=0.5," +
		"stream.policy=every")
	if err != nil {
		t.Fatal(err)
	}
	s, stop := servertest.Run(t, m)
	c := servertest.Dial(t, s, "/v2/models/spotter/stream")
	defer c.Close()
	r, err := video.Open(context.Background(), video.Options{URL: filepath.Join(dir, "clip.mp4")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	frame, named, boxes, switches := make([]byte, r.FrameSize()), 0, 0, 0
	last := map[int]int64{}
	var encoded []byte
	for i := 0; ; i++ {
		f, err := r.Next(frame)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if encoded, err = codec.EncodeJPEG(encoded[:0], f.Data, real.Width, real.Height, 90); err != nil {
			t.Fatal(err)
		}
		var reply struct {
			Error   any
			Outputs []struct {
				Name string
				Data []float64
			}
		}
		text := servertest.Ask(t, c, websocket.BinaryMessage, encoded)
		if err := json.Unmarshal([]byte(text), &reply); err != nil || reply.Error != nil {
			t.Fatalf("frame %d: %s", i, text)
		}
		by := map[string][]float64{}
		for _, o := range reply.Outputs {
			by[o.Name] = o.Data
		}
		if len(by["ids"])*4 != len(by["boxes"]) {
			t.Fatalf("frame %d: %s", i, text)
		}
		for k, id := range by["ids"] {
			boxes++
			if id == 0 {
				continue
			}
			named++
			b := by["boxes"][4*k:]
			for _, o := range real.Frames[i].Objects {
				if truth.IoU(o.Box, truth.Box{b[0], b[1], b[2], b[3]}) < 0.5 {
					continue
				}
				if old, ok := last[o.ID]; ok && old != int64(id) {
					switches++
				}
				last[o.ID] = int64(id)
			}
		}
	}
	t.Logf("%d boxes, %d with an id, %d digits, %d id switches", boxes, named, len(last), switches)
	if boxes < 1000 || named < boxes*8/10 || switches > 3*len(last) {
		t.Errorf("%d boxes, %d with an id, %d digits, %d id switches", boxes, named, len(last), switches)
	}
	_ = c.Close()
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"a=motion,output.track=true", "a=motion,output.classify.top_k=3,output.track=true"} {
		m, err := config.ParseModel(bad)
		if err != nil {
			t.Fatal(err)
		}
		srv, err := server.New(server.Config{HTTP: "127.0.0.1:0", GRPC: "off", Models: []workers.Config{m}})
		if err == nil {
			err = srv.Run(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), "output.track") && !strings.Contains(err.Error(),
			"output.classify") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
