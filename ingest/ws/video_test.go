package ws_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/batching"
	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/ws"
	"millrace/internal/child"
	"millrace/internal/testneeds"
	"millrace/internal/video/videotest"
	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// codecs are the bytes of the media header.
var codecs = map[string]byte{"h264": 4, "vp8": 5, "vp9": 6, "av1": 7}

// picture is a decoded frame, sent back by identity.
type picture struct {
	seq     uint64
	capture int64
	width   int
	height  int
	luma    int // of the first pixel
}

// answer returns the next ending: a picture, or another event.
func (v *v1) answer() (picture, event) {
	v.t.Helper()
	e := v.next()
	if e.Type != "binary" {
		return picture{}, e
	}
	h, payload, err := wire.ParseHeader(e.binary, wire.Server)
	if err != nil {
		v.t.Fatal(err)
	}
	_, data, err := wire.SplitTensors(payload)
	if err != nil {
		v.t.Fatal(err)
	}
	p := picture{seq: h.Seq, capture: h.CaptureUS, width: int(h.Width), height: int(h.Height)}
	if len(data) > 4 {
		p.luma = int(data[len(data)/3])
	}
	return p, e
}

func (v *v1) chunk(codec string, flags byte, sid uint32, seq uint64, data []byte) {
	v.t.Helper()
	v.media(raw(1, codecs[codec], flags, sid, seq, data))
}

func near(a, b int) bool { return a-b <= 4 && b-a <= 4 }

// In `every` each chunk's frame is returned decoded, with the chunk's seq and time,
// before the next chunk is sent.
func TestV1VideoInLockstep(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	for i, codec := range videotest.Codecs {
		list := videotest.Chunks(t, codec, 64, 48, 13)
		sid := uint32(i + 1)
		v.open(int(sid), `,"model":"echo","outputs":"binary","codec":"`+codec+`"`+every)
		for n, c := range list {
			seq := uint64(10 * n)
			v.chunk(codec, 0, sid, seq, c)
			p, e := v.answer()
			if e.Type != "binary" || p.seq != seq || p.capture != int64(1000+seq) || !near(p.luma, videotest.Luma(n)) {
				t.Fatalf("%s %d: %+v %+v", codec, n, p, e)
			}
		}
		v.chunk(codec, 8, sid, 1000, list[0])
		if _, e := v.answer(); e.Type != "binary" {
			t.Fatalf("%+v", e)
		}
		if e := v.expect("closed"); e.Totals.Received != 14 || e.Totals.Results != 14 {
			t.Errorf("%s: %+v", codec, e)
		}
	}
}

func TestV1VideoChangesSize(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo","outputs":"binary"`+every)
	seq := uint64(0)
	for _, side := range []int{64, 96, 64, 128} {
		for n, c := range videotest.Chunks(t, "vp8", side, side, 4) {
			v.chunk("vp8", 0, 1, seq, c)
			p, e := v.answer()
			_, payload, _ := wire.ParseHeader(e.binary, wire.Server)
			if e.Type != "binary" || p.seq != seq ||
				!strings.Contains(string(payload), fmt.Sprintf("[%d]", side*side*3/2)) &&
					!near(p.luma, videotest.Luma(n)) {
				t.Fatalf("%d pixels a side, %d: %+v %+v %.300s", side, n, p, e, payload)
			}
			seq++
		}
	}
}

// expectKeyFrame reads messages up to a request for a key frame, and returns the drops and errors before the request.
func (v *v1) expectKeyFrame(sid uint32) (before []event) {
	v.t.Helper()
	for {
		e := v.any()
		switch {
		case e.Type == "advise" && e.KeyFrame && e.SID == sid:
			return before
		case e.Type != "advise" && e.Type != "stats":
			before = append(before, e)
		}
	}
}

func TestV1VideoWithoutKeyFrame(t *testing.T) {
	r := start(t, ws.Options{})
	list := videotest.Chunks(t, "h264", 64, 48, 12)
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo","outputs":"binary"`+every)
	v.chunk("h264", 0, 1, 5, list[5])
	got := v.expectKeyFrame(1)
	if len(got) == 0 {
		got = append(got, v.next())
	}
	if e := got[0]; e.Type != "drop" || e.Reason != "undecoded" || e.Seqs[0] != [2]uint64{5, 5} {
		t.Fatalf("%+v", e)
	}
	v.chunk("h264", 1, 1, 10, list[10])
	if p, e := v.answer(); p.seq != 10 || !near(p.luma, videotest.Luma(10)) {
		t.Fatalf("%+v %+v", p, e)
	}
	// After a gap reported by the client, decoding waits for the next key frame.
	v.chunk("h264", 2, 1, 11, list[11])
	if e := v.expect("drop"); e.Reason != "undecoded" {
		t.Fatalf("%+v", e)
	}
	v.chunk("h264", 1, 1, 12, list[0])
	if p, e := v.answer(); p.seq != 12 {
		t.Fatalf("%+v %+v", p, e)
	}
	// A malformed chunk ends as an error, and the video continues with a key frame.
	v.chunk("h264", 0, 1, 13, []byte("garbage"))
	v.expectError("invalid_argument", "Annex B")
	v.chunk("h264", 0, 1, 14, list[1])
	if e := v.expect("drop"); e.Reason != "undecoded" {
		t.Fatalf("%+v", e)
	}
	v.chunk("h264", 0, 1, 15, list[0])
	if p, e := v.answer(); p.seq != 15 {
		t.Fatalf("%+v %+v", p, e)
	}
	v.say(`{"type":"close","sid":1}`)
	if e := v.expect("closed"); e.Totals.Received != 7 || e.Totals.Accepted != 7 || e.Totals.Results != 3 ||
		e.Totals.Drops != 3 || e.Totals.Errors != 1 {
		t.Errorf("%+v", e)
	}
}

// Parameter sets may be sent separately from the key frames.
func TestV1VideoConfig(t *testing.T) {
	r := start(t, ws.Options{})
	key := videotest.Chunks(t, "h264", 64, 48, 1)[0]
	idr := bytes.Index(key, []byte{0, 0, 1, 0x65})
	if idr < 0 {
		t.Fatalf("no IDR picture in % x", key[:64])
	}
	sets, picture := key[:idr-1], key[idr-1:]
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo","outputs":"binary"`+every)
	v.chunk("h264", 1, 1, 0, picture)
	v.expectError("invalid_argument", "parameter sets")
	v.media(raw(2, 4, 0, 1, 0, []byte("\x01\x42\x00\x1f")))
	v.expectError("invalid_argument", "configuration")
	v.media(raw(2, 4, 0, 9, 0, sets))
	v.expectError("not_found", "sid")
	v.media(raw(2, 4, 0, 1, 0, sets))
	v.chunk("h264", 1, 1, 1, picture)
	if p, e := v.answer(); p.seq != 1 || !near(p.luma, videotest.Luma(0)) {
		t.Fatalf("%+v %+v", p, e)
	}
	v.media(raw(2, 5, 0, 1, 0, sets))
	v.expectError("conflict", "codec")
	v.media(raw(2, 1, 0, 1, 70, sets)) // for a codec without parameter sets: no frame either
	v.expectError("invalid_argument", "kind")
	v.chunk("h264", 1, 1, 2, picture)
	if p, e := v.answer(); p.seq != 2 {
		t.Fatalf("%+v %+v", p, e)
	}
	v.say(`{"type":"close","sid":1}`)
	v.say(`{"type":"close","sid":1}`)
	if e := v.expect("closed"); e.Totals.Received != 3 {
		t.Errorf("%+v", e)
	}
}

// Without memory for chunks, the last chunk still ends its stream, and a codec configuration is no frame.
func TestV1VideoWithoutMemory(t *testing.T) {
	r := start(t, ws.Options{})
	list := videotest.Chunks(t, "vp8", 64, 48, 1)
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo","codec":"vp8"`+every)
	var all []*buf.Buf
	for size := 1 << 24; size >= 1; size /= 2 {
		for l, err := r.mem.Lease(size); err == nil; l, err = r.mem.Lease(size) {
			all = append(all, l)
		}
	}
	v.media(raw(2, 5, 0, 1, 90, list[0]))
	v.expectError("overloaded", "memory.budget")
	v.chunk("vp8", 8, 1, 0, list[0])
	e := v.expect("drop")
	for _, l := range all {
		l.Release()
	}
	if e.Reason != "memory" || e.Seqs[0] != [2]uint64{0, 0} {
		t.Errorf("%+v", e)
	}
	if e := v.expect("closed"); e.Totals.Received != 1 {
		t.Errorf("%+v", e)
	}
}

// In `latest` frames are dropped after decoding: each frame has its ending, the last frame is answered, and no frame
// is undecoded.
func TestV1VideoLatest(t *testing.T) {
	r := start(t, ws.Options{})
	const n = 120
	list := videotest.Chunks(t, "vp8", 64, 48, n)
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"slow","outputs":"none"`)
	begun := time.Now()
	go func() {
		for i, c := range list {
			flags := byte(0)
			if i == n-1 {
				flags = 4 | 8 // must be processed, and is the last
			}
			_ = v.WriteMessage(websocket.BinaryMessage, raw(1, 5, flags, 1, uint64(i), c))
		}
	}()
	seen := map[uint64]string{}
	for {
		e := v.next()
		if e.Type == "closed" {
			if e.Totals.Accepted != n || e.Totals.Results+e.Totals.Drops != n {
				t.Errorf("%+v", e)
			}
			break
		}
		switch e.Type {
		case "result":
			seen[e.Seq] += "result"
		case "drop":
			for _, s := range e.Seqs {
				for seq := s[0]; seq <= s[1]; seq++ {
					seen[seq] += e.Reason
				}
			}
		default:
			t.Fatalf("%+v", e)
		}
	}
	count := map[string]int{}
	for _, how := range seen {
		count[how]++
	}
	if late := count["undecoded"]; late > 0 && time.Since(begun) > time.Second { // the machine stood still
		if len(seen) != n || late+count["result"]+count["superseded"]+count["overtaken"]+count["stale"] != n {
			t.Errorf("%d frames ended: %v", len(seen), count)
		}
		return
	}
	if len(seen) != n || seen[n-1] != "result" || count["undecoded"] > 0 || count["result"]+count["superseded"]+
		count["overtaken"]+count["stale"] != n || count["superseded"] == 0 {
		t.Errorf("%d frames ended: %v; the last %q", len(seen), count, seen[n-1])
	}
}

func TestV1VideoRefusals(t *testing.T) {
	r := start(t, ws.Options{Limits: ingest.Limits{MaxDecoders: 1, MaxPixels: 64 * 48}}, tensorModel)
	v := r.v1("/v2/stream")
	for sid := 10; sid < 26; sid++ { // a stream takes a place with its first key frame, not before
		v.open(sid, `,"model":"echo","codec":"h264"`+every)
	}
	v.open(1, `,"model":"echo","codec":"vp9"`+every)
	v.chunk("vp9", 0, 1, 0, videotest.Chunks(t, "vp9", 64, 48, 1)[0])
	v.expectError("unsupported", "not UTF-8") // the frame was decoded, and is no text
	v.say(`{"type":"open","sid":2,"model":"echo","codec":"h264"}`)
	v.expectError("overloaded", "limits.max_decoders")
	v.expect("closed")
	v.open(3, `,"model":"echo"`+every)
	v.chunk("vp8", 0, 3, 0, []byte{1, 2, 3})
	v.expectError("overloaded", "limits.max_decoders")
	v.chunk("h264", 0, 10, 0, videotest.Chunks(t, "h264", 64, 48, 1)[0])
	v.expectError("overloaded", "limits.max_decoders")
	v.frame(10, 1) // the stream continues with pictures
	v.expect("result")
	v.chunk("vp8", 0, 1, 1, []byte{1, 2, 3})
	v.expectError("conflict", "codec")
	v.chunk("vp9", 0, 1, 2, videotest.Chunks(t, "vp9", 96, 48, 1)[0])
	v.expectError("too_large", "limits.max_pixels")
	v.say(`{"type":"close","sid":1}`)
	v.expect("closed")
	r.until("the place is free", func() bool { return r.ws.Stats().Decoders == 0 })
	v.say(`{"type":"open","sid":4,"model":"rows","codec":"vp8"}`)
	v.expectError("unsupported", "takes tensors")
	v.expect("closed")
	v.open(5, `,"model":"echo","codec":"vp8"`+every)
	v.frame(5, 0) // a single picture in a stream of video is no fault
	v.expect("result")
}

// The decoders of clients' videos are confined if and only if the options say so.
func TestVideosAreConfined(t *testing.T) {
	videotest.NeedSandbox(t)
	key, url := videotest.Chunks(t, "vp9", 64, 48, 1)[0], videos(t)
	for _, confined := range []bool{true, false} {
		r := start(t, ws.Options{Sandbox: confined, AllowPrivateURLs: true})
		v := r.v1("/v2/stream")
		v.open(1, `,"model":"echo","codec":"vp9"`+every)
		v.chunk("vp9", 0, 1, 0, key)
		v.expectError("unsupported", "not UTF-8") // the frame was decoded, and is no text
		if videotest.Confined(t) != confined {
			t.Errorf("a video that is sent: not %v", confined)
		}
		v.say(`{"type":"close","sid":1}`)
		v.expect("closed")
		r.until("the place is free", func() bool { return r.ws.Stats().Decoders == 0 })
		c := r.dial("/v2/models/slow/stream?outputs=none")
		c.say(`{"url":"` + url + `/long.mp4"}`)
		c.next()
		if videotest.Confined(t) != confined {
			t.Errorf("a video that is pulled: not %v", confined)
		}
		r.stop()
	}
}

// A client's quota of decoders covers all its sessions; without a quota each session has a decoder.
func TestV1VideosOfAClient(t *testing.T) {
	key := videotest.Chunks(t, "vp9", 64, 48, 1)[0]
	for _, bounded := range []bool{true, false} {
		o := ws.Options{Limits: ingest.Limits{MaxDecoders: 2}}
		var q access.Quotas
		if bounded {
			one := 1
			q.Decoders = &one
		}
		r := startFor(t, o, q)
		for i := range 2 {
			v := r.v1("/v2/stream")
			if bounded && i > 0 {
				v.say(`{"type":"open","sid":1,"model":"echo","codec":"vp9"}`)
				if e := v.expectError("flow_control", "quotas.decoders"); !e.Retryable || e.RetryAfterMS != 1000 {
					t.Errorf("%+v", e)
				}
				continue
			}
			v.open(1, `,"model":"echo","codec":"vp9"`+every)
			v.chunk("vp9", 0, 1, 0, key)
			v.expectError("unsupported", "not UTF-8") // the frame was decoded, and is no text
		}
	}
}

// A frame ends once, whatever happens to the stream, the decoder or the client.
func TestV1VideoEnds(t *testing.T) {
	list := videotest.Chunks(t, "h264", 64, 48, 30)
	send := func(v *v1, from, to int) {
		for i := from; i < to; i++ {
			v.chunk("h264", 0, 1, uint64(i), list[i])
		}
	}
	t.Run("closed", func(t *testing.T) {
		r := start(t, ws.Options{})
		v := r.v1("/v2/stream")
		v.open(1, `,"model":"slow","policy":{"mode":"every","window":32}`)
		send(v, 0, 20)
		v.say(`{"type":"close","sid":1}`)
		ended := map[uint64]int{}
		for {
			e := v.next()
			switch e.Type {
			case "result", "error":
				ended[e.Seq]++
				continue
			case "drop":
				for _, s := range e.Seqs {
					for seq := s[0]; seq <= s[1]; seq++ {
						ended[seq]++
					}
				}
				continue
			case "closed":
			default:
				t.Fatalf("%+v", e)
			}
			break
		}
		for seq := range uint64(20) {
			if ended[seq] != 1 {
				t.Errorf("frame %d has %d endings", seq, ended[seq])
			}
		}
	})
	t.Run("flushed", func(t *testing.T) {
		r := start(t, ws.Options{})
		v := r.v1("/v2/stream")
		v.open(1, `,"model":"echo","outputs":"none","policy":{"mode":"every","window":32}`)
		send(v, 0, 8)
		v.say(`{"type":"flush","sid":1}`)
		send(v, 8, 10)
		ended := 0
		for ended < 10 {
			switch e := v.next(); e.Type {
			case "result":
				ended++
			case "drop":
				for _, s := range e.Seqs {
					ended += int(s[1] - s[0] + 1)
				}
				if e.Reason != "flushed" {
					t.Errorf("%+v", e)
				}
			default:
				t.Fatalf("%+v", e)
			}
		}
	})
	t.Run("unloaded", func(t *testing.T) {
		r := start(t, ws.Options{})
		v := r.v1("/v2/stream")
		v.open(1, `,"model":"slow","policy":{"mode":"every","window":32}`)
		dir := t.TempDir() // with a silent ffmpeg
		testneeds.WriteProgram(t, filepath.Join(dir, "ffmpeg"), "#!/bin/sh\nexec sleep 1000\n")
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		send(v, 0, 10)
		v.say(`{"type":"ping","t":1}`)
		v.expect("pong")
		if err := r.models.Unload(t.Context(), "slow", ""); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			v.expectError("unloaded", "")
		}
		v.expect("closed")
		r.until("its ffmpeg is gone", func() bool { return child.LiveChildren() == 0 })
	})
	t.Run("client gone", func(t *testing.T) {
		r := start(t, ws.Options{Limits: ingest.Limits{Resume: 50 * time.Millisecond}})
		v := r.v1("/v2/stream")
		v.open(1, `,"model":"slow","policy":{"mode":"every","window":32}`)
		send(v, 0, 10)
		_ = v.NetConn().Close()
		r.until("its ffmpeg is gone", func() bool { return child.LiveChildren() == 0 && r.ws.Stats().Decoders == 0 })
	})
	t.Run("resumed", func(t *testing.T) {
		r := start(t, ws.Options{})
		v := r.v1("/v2/stream")
		v.open(1, `,"model":"echo","outputs":"none"`+every)
		send(v, 0, 1)
		v.expect("result")
		token := v.token
		_ = v.NetConn().Close()
		v = r.v1("/v2/stream")
		v.say(fmt.Sprintf(`{"type":"attach","token":%q,"streams":[{"sid":1,"last_seq":0}]}`, token))
		v.expect("attached")
		send(v, 1, 2) // the decoder has survived
		if e := v.expect("result"); e.Seq != 1 {
			t.Fatalf("%+v", e)
		}
	})
	t.Run("draining", func(t *testing.T) {
		r := start(t, ws.Options{})
		v := r.v1("/v2/stream")
		v.open(1, `,"model":"slow","policy":{"mode":"every","window":32}`)
		send(v, 0, 10)
		r.stop()
		if child.LiveChildren() != 0 {
			t.Errorf("%d children left", child.LiveChildren())
		}
	})
	t.Run("damaged", func(t *testing.T) {
		r := start(t, ws.Options{})
		v := r.v1("/v2/stream")
		v.open(1, `,"model":"echo","outputs":"none","policy":{"mode":"every","window":32}`)
		bad := bytes.Clone(list[3])
		for i := 10; i < len(bad); i++ {
			bad[i] = byte(i * 7)
		}
		bad = binary.LittleEndian.AppendUint64(bad, 0x0123456789abcdef)
		send(v, 0, 3)
		v.chunk("h264", 0, 1, 3, bad)
		send(v, 4, 30)
		ended := 0
		for ended < 30 {
			switch e := v.next(); e.Type {
			case "result":
				ended++
			case "drop":
				for _, s := range e.Seqs {
					ended += int(s[1] - s[0] + 1)
				}
				if e.Reason != "undecoded" {
					t.Errorf("%+v", e)
				}
			default:
				t.Fatalf("%+v", e)
			}
		}
	})
}

// tensorModel takes tensors and no pictures.
var tensorModel = workers.Config{Name: "rows", Kind: "rows"}

func init() {
	workers.Register(workers.Kind{Name: "rows", New: func() workers.Worker { return &rows{} }})
}

type rows struct{ workers.Base }

func (*rows) Init(context.Context, *workers.Env) (*stream.Model, error) {
	spec := []stream.TensorSpec{{Name: "x", Datatype: stream.Float32, Shape: []int{4}}}
	return &stream.Model{Inputs: spec, Outputs: spec, MaxBatch: 4}, nil
}

func (*rows) Run(_ context.Context, b *batching.Batch) error { b.Outputs = b.Inputs; return nil }
