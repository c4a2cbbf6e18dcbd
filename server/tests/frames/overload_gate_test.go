package frames_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/config"
	"millrace/examples/spotter"
	"millrace/internal/codec"
	"millrace/internal/servertest"
	"millrace/internal/video"
	"millrace/server"
	"millrace/workers"
)

// stillThenMoving is the example's clip as JPEG, repeating the first frame with sensor noise before the motion
// starts.
func stillThenMoving(t testing.TB, dir string, still, moving int) (frames [][]byte) {
	t.Helper()
	r, err := video.Open(context.Background(), video.Options{URL: filepath.Join(dir, "clip.mp4")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pixels, rng := make([]byte, r.FrameSize()), rand.New(rand.NewPCG(1, 2))
	w, h := r.Info().Width, r.Info().Height
	for i := range still + moving {
		if i == 0 || i >= still {
			if _, err := r.Next(pixels); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		noisy := bytes.Clone(pixels)
		for k := range noisy {
			noisy[k] = byte(min(max(int(noisy[k])+rng.IntN(9)-4, 0), 255))
		}
		b, err := codec.EncodeJPEG(nil, noisy, w, h, 85)
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, b)
	}
	return frames
}

// In a clip without motion at first, the model runs still frames once and at each refresh, and all moving frames;
// every frame has its ending, and a skipped frame's result is the result of the frame named in the skip.
func TestGate(t *testing.T) {
	dir := t.TempDir()
	for name, b := range map[string][]byte{"spotter.onnx": spotter.Model, "clip.mp4": spotter.Clip} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const still, moving = 60, 60
	frames := stillThenMoving(t, dir, still, moving)
	m, err := config.ParseModel("spotter=" + filepath.Join(dir, "spotter.onnx") +
		",input.image.scale=0.00392157,output.boxes.threshold=0.3,output.track=true,stream.policy=every," +
		"gate.changed=0.002,gate.refresh=1h")
	if err != nil {
		t.Fatal(err)
	}
	s, stop := servertest.Run(t, m)
	c := servertest.Dial(t, s, "/v2/models/spotter/stream")
	defer c.Close()
	answered := map[uint64]string{}
	stood, moved := 0, 0
	for i, b := range frames {
		text := servertest.Ask(t, c, websocket.BinaryMessage, b)
		var reply struct {
			Seq        uint64
			Parameters struct {
				Skipped bool
				Source  *uint64 `json:"source_seq"`
			}
			Outputs []struct {
				Name string
				Data json.RawMessage
			}
			Width int
		}
		if err := json.Unmarshal([]byte(text), &reply); err != nil || reply.Seq != uint64(i) ||
			len(reply.Outputs) == 0 || reply.Width == 0 {
			t.Fatalf("frame %d: %v %s", i, err, text)
		}
		boxes := ""
		for _, o := range reply.Outputs {
			if o.Name != "ids" { // ids appear at a box's second detection
				boxes += o.Name + string(o.Data)
			}
		}
		if !reply.Parameters.Skipped {
			answered[reply.Seq] = boxes
			continue
		}
		if reply.Parameters.Source == nil || answered[*reply.Parameters.Source] != boxes {
			t.Fatalf("frame %d is not what its source was: %s", i, text)
		}
		if i < still {
			stood++
		} else {
			moved++
		}
	}
	t.Logf("skipped %d of %d that stand, %d of %d that move", stood, still, moved, len(frames)-still)
	if stood != still-1 || moved > moving/10 {
		t.Errorf("skipped %d of %d that stand, %d of %d that move", stood, still, moved, len(frames)-still)
	}
	r, err := http.Get("http://" + s.Addr("http") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	if want := fmt.Sprintf(`millrace_skipped_frames_total{model="spotter",version="1"} %d`,
		stood+moved); !strings.Contains(string(text), want) {
		t.Errorf("the metrics lack %s", want)
	}
	_ = c.Close()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := s.Memory().Stats().Leases; n != 0 {
		t.Errorf("%d leases left", n)
	}
	bad, err := config.ParseModel("find=motion,gate.changed=0.1")
	if err != nil {
		t.Fatal(err)
	}
	srv, err := server.New(server.Config{HTTP: "127.0.0.1:0", GRPC: "off", Models: []workers.Config{bad}})
	if err == nil {
		err = srv.Run(context.Background())
	}
	if err == nil || !strings.Contains(err.Error(), "gate") {
		t.Errorf("a gate before the motion detector: %v", err)
	}
}
