package ws_test

import (
	"context"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/batching"
	"millrace/ingest/ws"
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/workers"
)

func init() {
	workers.Register(workers.Kind{Name: "gaze", New: func() workers.Worker { return &gaze{} }})
}

// gaze looks at pictures of 32 x 24 pixels, for a while at each.
type gaze struct{ workers.Base }

func (*gaze) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{
		MaxBatch: 1, Image: &stream.ImageSpec{Width: 32, Height: 24, Color: "RGB", Layout: "NHWC", Fit: "stretch"},
		Inputs:  []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{24, 32, 3}}},
		Outputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{24, 32, 3}}},
	}, nil
}

func (*gaze) Run(_ context.Context, b *batching.Batch) error {
	time.Sleep(100 * time.Millisecond)
	b.Outputs = b.Inputs
	return nil
}

// When large frames are dropped, the server advises a sufficient size once, with the proportions of the frames.
func TestV1AdviceOfSize(t *testing.T) {
	t.Parallel()
	r := start(t, ws.Options{AdviseEvery: 400 * time.Millisecond, StatsEvery: 2 * time.Second},
		workers.Config{Name: "gaze", Kind: "gaze"})
	pixels := make([]byte, 128*72*3)
	large, err := codec.EncodeJPEG(nil, pixels, 128, 72, 80)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name          string
		ext           []byte
		width, height int
	}{
		{"large", nil, 44, 24},
		{"a part of it", []byte{2, 8, 0, 0, 0, 0, 0, 64, 0, 48, 0}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := r.v1("/v2/stream")
			v.open(1, `,"model":"gaze","outputs":"none"`)
			go func() { // ends with the connection
				for seq := uint64(0); v.WriteMessage(websocket.BinaryMessage,
					raw(1, 1, 0, 1, seq, large, c.ext...)) == nil; seq++ {
					time.Sleep(10 * time.Millisecond) // the rate of a camera
				}
			}()
			width, height, rates := 0, 0, 0
			for told := 0; told < 2; { // until the statistics
				switch e := v.any(); e.Type {
				case "advise":
					if e.Width > 0 {
						if width > 0 {
							t.Errorf("told twice: %+v", e)
						}
						width, height = e.Width, e.Height
					}
					if e.FPS > 0 {
						rates++
					}
					if rates > 0 && told == 0 {
						told++
					}
				case "stats":
					told = 2
				}
			}
			if width != c.width || height != c.height || rates == 0 {
				t.Errorf("advised %d x %d, want %d x %d; %d rates", width, height, c.width, c.height, rates)
			}
		})
	}
}
