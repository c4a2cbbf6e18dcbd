package frames_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
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
	"millrace/internal/wire"
	"millrace/workers"
)

// frameOf is a frame of stream 1 in the protocol's bytes; region nil is the whole
// picture.
func frameOf(t *testing.T, c wire.Codec, seq uint64, w, h int, region *[4]uint16, payload []byte) []byte {
	t.Helper()
	b := []byte{1, 1, byte(c), 0}
	b = binary.LittleEndian.AppendUint32(b, 1)
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = append(b, make([]byte, 8)...)
	b = binary.LittleEndian.AppendUint16(b, uint16(w))
	b = binary.LittleEndian.AppendUint16(b, uint16(h))
	if region == nil {
		return append(append(b, 0, 0, 0, 0), payload...)
	}
	b = append(b, 11, 0, 0, 0, 2, 8, 0)
	for _, v := range region {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	return append(b, payload...)
}

// endingBoxes returns the boxes among the outputs of an ending.
func endingBoxes(e *servertest.Ending) (all []truth.Box) {
	for _, o := range e.Outputs {
		for b := o.Data; o.Name == "boxes" && len(b) >= 4; b = b[4:] {
			all = append(all, truth.Box(b[:4]))
		}
	}
	return all
}

// Results for a region use the pixels of the whole frame: digits are at their places in the clip. A bad region fails
// only its frame.
func TestRegions(t *testing.T) {
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
		",input.image.scale=0.00392157,output.boxes.threshold=0.3,stream.policy=every")
	if err != nil {
		t.Fatal(err)
	}
	s, stop := servertest.Run(t, m, workers.Config{Name: "echo", Source: "identity"})
	c := servertest.V1(t, s, `{"type":"open","sid":1,"model":"spotter"}`)
	defer c.Close()
	r, err := video.Open(context.Background(), video.Options{URL: filepath.Join(dir, "clip.mp4")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pixels, inside, found, wrong := make([]byte, r.FrameSize()), 0, 0, 0
	w, h := real.Width, real.Height
	send := func(b []byte) servertest.Ending {
		t.Helper()
		if err := c.WriteMessage(websocket.BinaryMessage, b); err != nil {
			t.Fatal(err)
		}
		return servertest.EndingOf(t, c)
	}
	seq := uint64(0)
	for i := 0; i < 100; i++ {
		f, err := r.Next(pixels)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		part := [4]uint16{uint16(i % (w / 4)), uint16((3*i + 1) % (h / 4)), uint16(w * 3 / 4), uint16(h * 3 / 4)}
		b := frameOf(t, wire.RGB24, seq, w, h, &part, f.Data)
		if i%2 == 0 {
			coded, err := codec.EncodeJPEG(nil, f.Data, w, h, 90)
			if err != nil {
				t.Fatal(err)
			}
			b = frameOf(t, wire.JPEG, seq, 0, 0, &part, coded)
		}
		e := send(b)
		if e.Type != "result" || e.Seq != seq || e.Width != w || e.Height != h {
			t.Fatalf("frame %d: %+v", i, e)
		}
		seq++
		boxes := endingBoxes(&e)
		region := truth.Box{float64(part[0]), float64(part[1]), float64(part[0] + part[2]), float64(part[1] + part[3])}
		for _, o := range real.Frames[i].Objects {
			if o.Box[0] < region[0] || o.Box[1] < region[1] || o.Box[2] > region[2] || o.Box[3] > region[3] {
				continue
			}
			inside++
			for _, b := range boxes {
				if truth.IoU(o.Box, b) >= 0.5 {
					found++
					break
				}
			}
		}
		for _, b := range boxes {
			x, y := (b[0]+b[2])/2, (b[1]+b[3])/2
			if x < region[0] || y < region[1] || x > region[2] || y > region[3] {
				wrong++
			}
		}
	}
	t.Logf("%d digits in regions, %d found, %d boxes outside", inside, found, wrong)
	if inside < 50 || found < inside*8/10 || wrong > 0 {
		t.Errorf("%d digits in regions, %d found, %d boxes outside", inside, found, wrong)
	}

	// The same, asked for in the address.
	plain := servertest.Dial(t, s, "/v2/models/spotter/stream?roi=0,0,64,48")
	defer plain.Close()
	overREST := func(query, kind string, b []byte) string {
		t.Helper()
		r, err := http.Post("http://"+s.Addr("http")+"/v2/models/spotter/infer"+query, kind, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, _ := io.ReadAll(r.Body)
		return string(text)
	}
	for _, c := range []struct {
		b    []byte
		want string
	}{{servertest.JPEG(t, 64, 48), `"boxes"`}, {servertest.JPEG(t, 63, 48), "beyond the 63x48 picture"},
		{servertest.JPEG(t, 100, 80), `"boxes"`}} {
		if got := servertest.Ask(t, plain, websocket.BinaryMessage, c.b); !strings.Contains(got, c.want) {
			t.Errorf("plain: %s, want %s", got, c.want)
		}
		if got := overREST("?roi=0,0,64,48", "image/jpeg", c.b); !strings.Contains(got, c.want) ||
			strings.Contains(got, "ext.") {
			t.Errorf("REST: %s, want %s", got, c.want)
		}
	}
	if got := servertest.Ask(t, plain, websocket.TextMessage,
		[]byte(`{"url":"http://192.0.2.1/a.mp4"}`)); !strings.Contains(got,
		"roi") {
		t.Errorf("a pulled video: %s", got)
	}
	if got := overREST("?roi=0,0,64,48", "application/json", []byte(`{"inputs":[]}`)); !strings.Contains(got, "roi") {
		t.Errorf("tensors over REST: %s", got)
	}
	for _, bad := range []string{"1,2,3", "0,0,0,5", "0,0,70000,5", "-1,0,5,5", "a,b,c,d", ""} {
		if got := overREST("?roi="+bad, "image/jpeg", servertest.JPEG(t, 64, 48)); !strings.Contains(got, "roi") ||
			strings.Contains(got, "boxes") {
			t.Errorf("roi=%s: %s", bad, got)
		}
	}
	_ = plain.Close()

	gray, err := codec.EncodeJPEG(nil, make([]byte, 3*64*48), 64, 48, 90)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		part [4]uint16
		want string
	}{{[4]uint16{0, 0, 65, 48}, "64x48"}, {[4]uint16{64, 0, 1, 1}, "64x48"},
		{[4]uint16{65535, 65535, 65535, 65535}, "64x48"}, {[4]uint16{}, "empty"}, {[4]uint16{3, 3, 0, 9}, "empty"}} {
		e := send(frameOf(t, wire.JPEG, seq, 0, 0, &bad.part, gray))
		if e.Type != "error" || e.Seq != seq || e.Code != "invalid_argument" ||
			!strings.Contains(e.Message, "ext.roi") || !strings.Contains(e.Message, bad.want) {
			t.Errorf("%v: %+v", bad.part, e)
		}
		seq++
	}
	for _, kind := range [][2]byte{{byte(wire.KindTensor), byte(wire.Tensors)},
		{byte(wire.KindAudio), byte(wire.PCM16)}} {
		b := frameOf(t, wire.JPEG, seq, 0, 0, &[4]uint16{0, 0, 9, 9}, gray)
		b[1], b[2] = kind[0], kind[1]
		if e := send(b); e.Type != "error" || e.Seq != seq || !strings.Contains(e.Message, "ext.roi") {
			t.Errorf("kind %d: %+v", kind[0], e)
		}
		seq++
	}
	if e := send(frameOf(t, wire.JPEG, seq, 0, 0, &[4]uint16{0, 0, 64, 48}, gray)); e.Type != "result" {
		t.Errorf("after them: %+v", e)
	}
	echo := servertest.V1(t, s, `{"type":"open","sid":1,"model":"echo"}`)
	defer echo.Close()
	if err := echo.WriteMessage(websocket.BinaryMessage, frameOf(t, wire.JPEG, 0, 0, 0, &[4]uint16{0, 0, 9, 9},
		gray)); err != nil {
		t.Fatal(err)
	}
	if e := servertest.EndingOf(t, echo); e.Type != "error" || e.Code != "unsupported" || !strings.Contains(e.Message,
		"ext.roi") {
		t.Errorf("to a model that takes anything: %+v", e)
	}
	_ = c.Close()
	_ = echo.Close()
	if err := stop(); err != nil {
		t.Error(err)
	}
}
