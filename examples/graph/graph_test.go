// Package graph is the worked example of docs/graphs.md: digits are found, tracked, and
// the colour of each track is found every ten frames.
package graph

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/config"
	"millrace/internal/codec"
	"millrace/internal/video"
	"millrace/server"
	"millrace/stream"
	"millrace/workers/onnx"
)

// reply is a frame's answer over WebSocket.
type reply struct {
	Error   any
	Dropped string
	Outputs []struct {
		Name  string
		Shape []int
		Data  []any
	}
}

func (r *reply) data(t *testing.T, name string) []any {
	t.Helper()
	for _, o := range r.Outputs {
		if o.Name == name {
			return o.Data
		}
	}
	t.Fatalf("no output %s in %+v", name, r)
	return nil
}

// TestDigitsOnACamera sends the clip as a live stream: each box has a colour, the classifier runs for each id every
// ten frames only, and every frame of all models has its ending.
func TestDigitsOnACamera(t *testing.T) {
	if _, err := onnx.Library(); err != nil {
		t.Skip(err)
	}
	cfg, err := config.Load("config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg.HTTP, cfg.Log.Level = "127.0.0.1:0", "error"
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
		if st := s.Memory().Stats(); st.Leases != 0 || st.Leased != 0 {
			t.Errorf("%d leases of %d bytes are left", st.Leases, st.Leased)
		}
	}()
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}

	pictures := clip(t, 90)
	c, _, err := websocket.DefaultDialer.Dial("ws://"+s.Addr("http")+"/v2/models/traffic/stream?policy=every", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	boxes, untracked, named := 0, 0, map[float64]int{}
	for i, p := range pictures {
		if err := c.WriteMessage(websocket.BinaryMessage, p); err != nil {
			t.Fatal(err)
		}
		_, text, err := c.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		var r reply
		if err := json.Unmarshal(text, &r); err != nil || r.Error != nil || r.Dropped != "" {
			t.Fatalf("frame %d: %s", i, text)
		}
		ids, colours := r.data(t, "ids"), r.data(t, "colours")
		if len(r.data(t, "boxes")) != 4*len(ids) || len(colours) != len(ids) {
			t.Fatalf("frame %d: %d ids and %d colours for %d boxes", i, len(ids), len(colours),
				len(r.data(t, "boxes"))/4)
		}
		for k, id := range ids {
			boxes++
			if colour := colours[k]; colour != "red" && colour != "green" && colour != "blue" {
				t.Fatalf("frame %d: the colour is %v", i, colour)
			}
			if id := id.(float64); id == 0 {
				untracked++
			} else {
				named[id]++
			}
		}
	}
	most := untracked // runs of the classifier
	for _, frames := range named {
		most += (frames + 9) / 10
	}
	ran := int(accounted(t, s)["colour"])
	if boxes < 300 || ran < len(named) || ran > most+len(named) || ran > boxes/2 {
		t.Errorf("the classifier ran %d times for %d boxes with %d ids, %d of them without an id: want about %d", ran,
			boxes, len(named), untracked, most)
	}
	cropsAreRegions(t, s, pictures[60])
}

// cropsAreRegions checks that the graph's result in a box is the classifier's result in the same region of the
// picture.
func cropsAreRegions(t *testing.T, s *server.Server, picture []byte) {
	t.Helper()
	whole, err := s.Native().InferBytes(t.Context(), "traffic", stream.JPEG, picture)
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Release()
	floats := func(r *stream.Result, name string) []float32 {
		for i := range r.Outputs {
			if r.Outputs[i].Name == name {
				return r.Outputs[i].Float32s()
			}
		}
		t.Fatalf("no output %s", name)
		return nil
	}
	boxes, shares := floats(whole, "boxes"), floats(whole, "shares")
	if len(boxes) < 8 || len(boxes) != 4*len(shares) || whole.Width != 320 || whole.Height != 240 {
		t.Fatalf("%d boxes and %d shares of a picture of %dx%d", len(boxes)/4, len(shares), whole.Width, whole.Height)
	}
	for i, share := range shares {
		b := boxes[4*i:]
		x, y := math.Floor(float64(b[0])), math.Floor(float64(b[1]))
		f := stream.Frame{Codec: stream.JPEG, Payload: picture, Region: stream.Region{
			X: uint16(x), Y: uint16(y), Width: uint16(math.Ceil(float64(b[2])) - x),
			Height: uint16(math.Ceil(float64(b[3])) - y),
		}}
		r, err := s.Native().Do(t.Context(), "colour", "", f)
		if err != nil {
			t.Fatal(err)
		}
		if own := floats(r, "scores")[0]; math.Abs(float64(own-share)) > 0.03 {
			t.Errorf("box %d: %v in the graph, %v alone", i, share, own)
		}
		r.Release()
	}
}

// accounted returns the results of each model, once no frame is in flight.
func accounted(t *testing.T, s *server.Server) map[string]uint64 {
	t.Helper()
	out := map[string]uint64{}
	for _, g := range s.Models().Stats() {
		f := g.Frames
		for until := time.Now().Add(10 * time.Second); f.InFlight > 0 &&
			time.Now().Before(until); time.Sleep(time.Millisecond) {
			for _, again := range s.Models().Stats() {
				if again.Model.Name == g.Model.Name {
					f = again.Frames
				}
			}
		}
		drops, errors := uint64(0), uint64(0)
		for _, n := range f.Drops {
			drops += n
		}
		for _, n := range f.Errors {
			errors += n
		}
		if f.InFlight != 0 || f.Accepted != f.Results+drops+errors || drops+errors > 0 {
			t.Errorf("%s: %d accepted, %d results, %d drops, %d errors, %d in flight", g.Model.Name, f.Accepted,
				f.Results, drops, errors, f.InFlight)
		}
		out[g.Model.Name] = f.Results
	}
	return out
}

// clip returns the first n frames of the clip as JPEG.
func clip(t *testing.T, n int) (out [][]byte) {
	t.Helper()
	r, err := video.Open(context.Background(), video.Options{URL: "../spotter/clip.mp4"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	frame := make([]byte, r.FrameSize())
	for len(out) < n {
		f, err := r.Next(frame)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		p, err := codec.EncodeJPEG(nil, f.Data, f.Width, f.Height, 90)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}
