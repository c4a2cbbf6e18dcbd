package frames_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/config"
	"millrace/internal/servertest"
	"millrace/internal/wire"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// windows returns a reply in the tests' form: its rows in samples of pcm16, and the end of the last row; or the other
// ending.
func windows(t *testing.T, msg []byte, scale float64) string {
	t.Helper()
	var r struct {
		Type, Message string
		Dropped       string
		Error         struct{ Message string }
		Parameters    map[string]any
		Outputs       []struct {
			Shape []int
			Data  []float64
		}
	}
	if err := json.Unmarshal(msg, &r); err != nil {
		t.Fatalf("%s: %v", msg, err)
	}
	switch {
	case r.Error.Message != "" || r.Message != "":
		return "error " + r.Error.Message + r.Message
	case len(r.Outputs) == 0:
		return fmt.Sprint(r.Parameters["window"])
	}
	var out []string
	o := r.Outputs[0]
	n := len(o.Data) / o.Shape[0]
	for i := range o.Shape[0] {
		var row []int
		for _, v := range o.Data[i*n : (i+1)*n] {
			row = append(row, int(math.Round(v*scale)))
		}
		out = append(out, fmt.Sprint(row))
	}
	return fmt.Sprint(strings.Join(out, " "), " ", r.Parameters["window_end"])
}

func fp32(vs ...float32) []byte { return stream.AppendFloat32(nil, vs...) }

const full = 1 << 15 // pcm16 in FP32

// end stops a server and checks the release of all memory.
func endOf(t *testing.T, s *server.Server, stop func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if m := s.Memory().Stats(); m.Leases != 0 {
		t.Errorf("%+v", m)
	}
}

func TestSoundInWindowsOverPlainWebSocket(t *testing.T) {
	s, stop := servertest.Run(t, servertest.Mirror(t, "window.hop=2,batching.max_size=4,stream.policy=every"))
	defer func() { endOf(t, s, stop) }()
	c := servertest.Dial(t, s, "/v2/models/mirror/stream?codec=pcm16")
	defer c.Close()
	for _, x := range []struct {
		send []byte
		want string
	}{
		{servertest.PCM16(1, 2, 3), "filling"},
		{servertest.PCM16(-4, 5), "[1 2 3 -4] 3"},
		{servertest.PCM16(6, 7, 8, 9, 10, 11), "[3 -4 5 6] [5 6 7 8] [7 8 9 10] 9"},
		{servertest.PCM16(make([]int, 20)...),
			"error window.hop: is 2, so that a frame of 20 completes 10 windows, and model " +
				"mirror takes 4 at once (batching.max_size): send at most 8 in one frame"},
		{servertest.PCM16(1, 2, 3), "filling"},
		{servertest.PCM16(4), "[1 2 3 4] 3"},
		{[]byte{1}, "error frame: has 1 bytes, and one sample of pcm16 has 2 for model mirror: send whole samples"},
		{servertest.PCM16(1, 2, 3, 4, 5, 32767, -32768), "[1 2 3 4] [3 4 5 32767] 5"},
	} {
		if got := windows(t, []byte(servertest.Ask(t, c, websocket.BinaryMessage, x.send)), full); got != x.want {
			t.Errorf("%d bytes: %s\nwant %s", len(x.send), got, x.want)
		}
	}
}

// rowsOf is the payload of a tensor x.
func rowsOf(shape string, vs ...float32) []byte {
	text := fmt.Sprintf(`{"inputs":[{"name":"x","datatype":"FP32","shape":%s,"parameters":{"binary_data_size":%d}}]}`,
		shape, 4*len(vs))
	return append(wire.AppendTensorsPrefix(nil, []byte(text)), fp32(vs...)...)
}

func TestSoundAndRowsInWindowsOverV1(t *testing.T) {
	s, stop := servertest.Run(t, servertest.Mirror(t, "window.hop=2,batching.max_size=4,stream.policy=every"))
	defer func() { endOf(t, s, stop) }()
	c := servertest.V1(t, s, `{"type":"open","sid":1,"model":"mirror"}`)
	defer c.Close()
	seq := uint64(0)
	for _, x := range []struct {
		what string
		msg  func() []byte
		want string
	}{
		{"floats", func() []byte { return servertest.Media(wire.KindAudio, wire.PCMFloat, 0, seq, fp32(1, 2, 3)) },
			"filling"},
		{"and rows", func() []byte {
			return servertest.Media(wire.KindTensor, wire.Tensors, 0, seq, rowsOf("[2]", 4, 5))
		}, "[1 2 3 4] 3"},
		{"whole windows between", func() []byte {
			return servertest.Media(wire.KindTensor, wire.Tensors, 0, seq, rowsOf("[2,4]", 11, 12, 13, 14, 21, 22, 23,
				24))
		}, "[11 12 13 14] [21 22 23 24] <nil>"},
		{"and pcm16", func() []byte {
			return servertest.Media(wire.KindAudio, wire.PCM16, 0, seq,
				servertest.PCM16(0))
		}, "[3 4 5 0] 5"},
		{"after a gap", func() []byte {
			return servertest.Media(wire.KindAudio, wire.PCMFloat, wire.FlagDiscontinuity, seq, fp32(6, 7, 8))
		}, "filling"},
		{"on", func() []byte { return servertest.Media(wire.KindAudio, wire.PCMFloat, 0, seq, fp32(9)) },
			"[6 7 8 9] 3"},
		{"no rows of it", func() []byte {
			return servertest.Media(wire.KindTensor, wire.Tensors, 0, seq, rowsOf("[1,2]",
				4, 5))
		},
			"error inputs.x.shape: is [1 2], model mirror wants [-1 4] (-1 = any)"},
		{"still on", func() []byte {
			return servertest.Media(wire.KindAudio, wire.PCMFloat, 0, seq, fp32(10, 11))
		}, "[8 9 10 11] 5"},
		{"flushed", func() []byte {
			if err := c.WriteMessage(websocket.TextMessage, []byte(`{"type":"flush","sid":1}`)); err != nil {
				t.Fatal(err)
			}
			return servertest.Media(wire.KindAudio, wire.PCMFloat, 0, seq, fp32(12, 13, 14, 15))
		}, "[12 13 14 15] 3"},
	} {
		if err := c.WriteMessage(websocket.BinaryMessage, x.msg()); err != nil {
			t.Fatal(err)
		}
		seq++
		if got := windows(t, endingMessage(t, c), 1); got != x.want {
			t.Errorf("%s: %s\nwant %s", x.what, got, x.want)
		}
	}
}

// endingMessage reads up to a frame's ending.
func endingMessage(t *testing.T, c *websocket.Conn) []byte {
	t.Helper()
	for {
		_, b, err := c.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"result", "error", "drop"} {
			if bytes.HasPrefix(b, []byte(`{"type":"`+kind)) {
				return b
			}
		}
	}
}

// A one-shot request has whole windows, as tensors or as sound.
func TestWholeWindowsByRequest(t *testing.T) {
	s, stop := servertest.Run(t, servertest.Mirror(t, "window.hop=2,batching.max_size=4"))
	defer func() { endOf(t, s, stop) }()
	post := func(query, kind string, body []byte) string {
		t.Helper()
		r, err := http.Post(s.URL("http")+"/v2/models/mirror/infer"+query, kind, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for range 2 { // the second begins where the first did
		got := post("", "application/json", []byte(`{"inputs":[{"name":"x","datatype":"FP32","shape":[4],"data":[1,`+
			`2,3,4]}]}`))
		if !strings.Contains(got, `"shape":[1,4],"data":[1,2,3,4]`) {
			t.Error(got)
		}
		if got := windows(t, []byte(post("?codec=pcm16", "application/octet-stream", servertest.PCM16(1, 2, 3, 4, 5, 6,
			7))),
			full); got != "[1 2 3 4] [3 4 5 6] 5" {
			t.Error(got)
		}
		if got := post("?codec=pcm16", "application/octet-stream", servertest.PCM16(1, 2, 3)); !strings.Contains(got,
			"window.length: is 4 and this request has 3") {
			t.Error(got)
		}
	}
	r, err := s.Native().InferBytes(context.Background(), "mirror", stream.PCMFloat, fp32(1, 2, 3, 4))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.Outputs[0].Float32s(), r.Params["window_end"]); got != "[1 2 3 4] 3" {
		t.Error(got)
	}
	r.Release()
}

// Each picture is sent once, and is in three windows.
func TestPicturesInWindows(t *testing.T) {
	s, stop := servertest.Run(t, servertest.Mirror(t, "window.hop=1,input.image.layout=NCHW,stream.policy=every"))
	defer func() { endOf(t, s, stop) }()
	c := servertest.Dial(t, s, "/v2/models/mirror/stream")
	defer c.Close()
	row := func(vs ...int) string {
		var out []int
		for _, v := range vs {
			out = append(out, v, v, v, v)
		}
		return fmt.Sprint(out)
	}
	picture := func(v int) []byte {
		img := image.NewGray(image.Rect(0, 0, 5+v%3, 4))
		for i := range img.Pix {
			img.Pix[i] = color.Gray{Y: uint8(v)}.Y
		}
		var b bytes.Buffer
		if err := png.Encode(&b, img); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	torn := picture(7)
	torn = torn[:len(torn)-20]
	for i, x := range []struct {
		send []byte
		want string
	}{
		{picture(10), "filling"},
		{picture(20), "filling"},
		{picture(30), row(10, 20, 30) + " 2"},
		{picture(40), row(20, 30, 40) + " 3"},
		{torn, "error frame: picture 3 of 3 in this window, seq 4: "},
		{picture(50), "error frame: picture 2 of 3 in this window, seq 4: "},
		{picture(60), "error frame: picture 1 of 3 in this window, seq 4: "},
		{picture(70), row(50, 60, 70) + " 7"},
	} {
		if got := windows(t, []byte(servertest.Ask(t, c, websocket.BinaryMessage, x.send)), 1); !strings.HasPrefix(got,
			x.want) {
			t.Errorf("picture %d: %s\nwant %s", i, got, x.want)
		}
	}
	if got := servertest.Ask(t, c, websocket.BinaryMessage, []byte("GIF89a")); !strings.Contains(got, "error") {
		t.Error(got)
	}
}

// Many live streams with constantly dropped windows: answered windows have no gap, and every frame has its ending.
func TestManyStreamsOfSound(t *testing.T) {
	s, stop := servertest.Run(t, servertest.Mirror(t, "window.hop=3,batching.max_size=8,instances=2"))
	defer func() { endOf(t, s, stop) }()
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Go(func() {
			endings, answered, mode := 0, 0, []stream.Mode{stream.Latest, stream.Every}[k%2]
			next := int64(-1)
			done := make(chan struct{})
			st, err := s.Native().Stream("mirror", stream.Options{Policy: stream.Policy{Mode: mode, Window: 1024}},
				func(r *stream.Result) {
					endings++
					if r.Err != nil {
						t.Errorf("%d: %v", r.Seq, r.Err)
					}
					if r.Outcome != stream.Answered || len(r.Outputs) == 0 {
						return
					}
					rows, end := r.Outputs[0].Float32s(), r.Params["window_end"].(int64)
					first := end - 3 - 3*int64(len(rows)/4-1)
					if mode == stream.Every && next >= 0 && first != next {
						t.Errorf("windows from %d on, want %d", first, next)
					}
					next = end // a window is 4, the next begins 3 behind its start
					for i, v := range rows {
						if want := first + int64(i/4)*3 + int64(i%4); int64(v) != want {
							t.Errorf("frame %d, row %d: %v\nwant %d first", r.Seq, i/4, rows, first)
							return
						}
					}
					answered++
				}, func(stream.CloseReason) { close(done) })
			if err != nil {
				t.Error(err)
				return
			}
			r, sample := rand.New(rand.NewPCG(uint64(k), 1)), 0
			for seq := range 500 {
				var vs []float32
				for range 1 + r.IntN(24) {
					vs = append(vs, float32(sample))
					sample++
				}
				if err := st.Send(uint64(seq), stream.PCMFloat, fp32(vs...)); err != nil {
					t.Error(err)
				}
			}
			for st.WaitingFrames() > 0 {
				runtime.Gosched()
			}
			st.Close(stream.ByClient)
			<-done
			if endings != 500 || answered == 0 || mode == stream.Every && next != int64((sample-4)/3*3+3) {
				t.Errorf("%s: %d endings of 500, %d with windows, the next from %d on after %d samples", mode, endings,
					answered, next, sample)
			}
		})
	}
	wg.Wait()
}

func TestWindowsThatDoNotFitTheModel(t *testing.T) {
	for settings, want := range map[string]string{
		"window.length=5": "models[0].window.length: is 5, but input x of model mirror has 4",
		"window.hop=-1":   "mirror.window.hop: -1 is not between 1 and 16777216",
		"window.size=3":   "mirror.window.size: is not a setting: there are hop, length",
		"input.image.width=2,input.image.layout=NCHW,window.length=2": "window.length: is 2, but input x of model " +
			"mirror has 3",
	} {
		of := "instances=1"
		if strings.Contains(settings, "image") {
			of = "input.image.width=2"
		}
		m, err := config.ParseModel("mirror=" + servertest.Mirror(t, of).Source + "," + settings)
		var s *server.Server
		if err == nil {
			if s, err = server.New(server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
				Models: []workers.Config{m}}); err == nil {
				err = s.Run(context.Background())
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", settings, err, want)
		}
	}
}
