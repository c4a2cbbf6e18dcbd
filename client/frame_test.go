package client

import (
	"encoding/json"
	"image"
	"math"
	"strings"
	"testing"
	"time"

	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/rules"
)

// The encoded header of a frame, and refusals, up to the bounds of the fields.
func TestFramesOnTheWire(t *testing.T) {
	opts := &StreamOptions{}
	full := Frame{
		Data: []byte("x"), Codec: "jpeg", Key: true, Discontinuity: true, Must: true, Last: true, CaptureUS: 7,
		Deadline: 3 * time.Millisecond,
		Region:   image.Rect(1, 2, 4, 6),
	}
	m, err := full.message(opts)
	if err != nil {
		t.Fatal(err)
	}
	h := m.head
	if h.Kind != wire.KindFrame || h.Codec != wire.Codec(stream.JPEG) || h.CaptureUS != 7 || h.DeadlineMS != 3 ||
		h.Flags != wire.FlagKey|wire.FlagDiscontinuity|wire.FlagMust|wire.FlagEnd || !h.Ext.HasROI ||
		h.Ext.ROI != [4]uint16{1, 2, 3, 4} {
		t.Errorf("%+v", h)
	}
	if m.size != len(wire.AppendHeader(nil, &h))+1 {
		t.Errorf("a size of %d", m.size)
	}
	if m, err := (&Frame{Data: []byte("x"), Params: stream.Params{}}).message(opts); err != nil || m.head.Flags != 0 ||
		m.head.Ext.HasROI || m.head.Ext.Params != nil {
		t.Errorf("%+v, %v", m.head, err)
	}
	tensors := Frame{
		Inputs: []stream.Tensor{{Name: "x", Datatype: stream.Uint8, Shape: []int{3}, Data: []byte{1, 2, 3}},
			{Name: "y", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{4}}},
		Params: stream.Params{"a": "b"},
	}
	m, err = tensors.message(opts)
	if want := len(wire.AppendTensorsPrefix(wire.AppendHeader(nil, &m.head), m.json)) + 4; err != nil ||
		m.size != want || m.head.Ext.Params == nil {
		t.Errorf("a size of %d, want %d; %v", m.size, want, err)
	}
	for codec, kind := range map[string]wire.Kind{"pcm16": wire.KindAudio, "pcmf32": wire.KindAudio,
		"h264": wire.KindFrame, "": wire.KindFrame} {
		if m, err := (&Frame{Data: []byte("x")}).message(&StreamOptions{Codec: codec}); err != nil ||
			m.head.Kind != kind {
			t.Errorf("%s: kind %d, %v", codec, m.head.Kind, err)
		}
	}
	const most = math.MaxUint16
	for r, ok := range map[image.Rectangle]bool{
		image.Rect(0, 0, 1, 1): true, image.Rect(most, most, most+1, most+1): true, image.Rect(0, 0, most, most): true,
		image.Rect(-1, 0, 1, 1): false, image.Rect(0, -1, 1, 1): false, image.Rect(most+1, 0, most+2, 1): false,
		image.Rect(0, most+1, 1, most+2): false,
		image.Rect(0, 0, most+1, 1):      false, image.Rect(0, 0, 1, most+1): false,
	} {
		if _, err := (&Frame{Data: []byte("x"), Region: r}).message(opts); (err == nil) != ok ||
			err != nil && stream.CodeOf(err) != stream.InvalidArgument {
			t.Errorf("%v: %v", r, err)
		}
	}
	for n, code := range map[int]stream.Code{maxConfig: "", maxConfig + 1: stream.TooLarge} {
		if _, err := config("h264", make([]byte, n)); stream.CodeOf(err) != code {
			t.Errorf("%d bytes of parameters: %v", n, err)
		}
	}
	for codec, ok := range map[string]bool{"h264": true, "vp8": true, "vp9": true, "av1": true, "webp": false,
		"rgb24": false} {
		if _, err := config(codec, nil); (err == nil) != ok {
			t.Errorf("%s: %v", codec, err)
		}
	}
}

// alone returns a stream of a session without a connection.
func alone(o StreamOptions) *Stream {
	return &Stream{s: &Session{streams: map[uint32]*Stream{}}, opts: o, state: open}
}

// A message may be as large as the server's limit, and may be sent while credit is left, but not after the stream was
// closed.
func TestSendLimits(t *testing.T) {
	st := alone(StreamOptions{})
	st.s.limits.MaxMessage = 100
	for size, code := range map[int]stream.Code{0: "", 100: "", 101: stream.TooLarge} {
		if err := st.sendError(size); stream.CodeOf(err) != code {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	st.s.limits.MaxMessage = 0 // unknown
	if err := st.sendError(1 << 30); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		sent, limit      uint64
		window, atServer int
		ok               bool
	}{
		{0, 1, 0, 0, true}, {1, 1, 0, 0, false}, {0, 9, 2, 1, true}, {0, 9, 2, 2, false}, {0, 9, 0, 50, true},
		{2, 1, 0, 0, false},
	} {
		st.sent, st.limit, st.policy.Window, st.atServer = c.sent, c.limit, c.window, c.atServer
		if st.hasCredit() != c.ok {
			t.Errorf("%+v", c)
		}
	}
	for _, closed := range []func(){func() { st.closing = true }, func() { st.closing, st.state = false, 2 }} {
		if closed(); stream.CodeOf(st.sendError(0)) != stream.Canceled {
			t.Error(st.sendError(0))
		}
	}
}

// The open message has the stream's options and later updates.
func TestOpenMessage(t *testing.T) {
	st := alone(StreamOptions{Outputs: Binary, Params: stream.Params{"a": "b"}, Policy: stream.Policy{Window: 3}})
	if m := st.openMessage(); m.Outputs != "binary" || m.Params["a"] != "b" || m.Policy.Window != 3 {
		t.Errorf("%+v", m)
	}
	door, err := rules.Parse([]byte(`{"lines":[{"name":"door","from":[0,0],"to":[1,1]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	ruled := alone(StreamOptions{Rules: door}).openMessage()
	if want := `{"lines":[{"from":[0,0],"name":"door","to":[1,1]}]}`; string(ruled.Rules) != want {
		t.Errorf("rules %s", ruled.Rules)
	}
	door.Lines[0].To = nil
	if _, err := newStream(nil, "m", StreamOptions{Rules: door}); err == nil ||
		!strings.Contains(err.Error(), "rules.lines[0].to") {
		t.Errorf("a wrong line: %v", err)
	}
	st.updated, st.update = true, Update{Outputs: None, Params: stream.Params{"c": "d"}, Window: new(4)}
	if m := st.openMessage(); m.Outputs != "none" || m.Params["c"] != "d" || len(m.Params) != 1 ||
		m.Policy.Window != 4 || st.updated {
		t.Errorf("%+v", m)
	}
	s := st.s
	for _, want := range []uint32{1, 3, 4} {
		s.streams[2] = st
		if got := s.newSID(); got != want {
			t.Errorf("stream %d, want %d", got, want)
		}
	}
}

// Streams being opened are not attached: nothing can have been lost.
func TestAttachNamesOpenStreams(t *testing.T) {
	st := alone(StreamOptions{})
	opens, other := alone(StreamOptions{}), alone(StreamOptions{})
	st.sid, opens.sid, opens.state, other.sid = 1, 2, opening, 3
	s := st.s
	s.token, s.streams = "t", map[uint32]*Stream{1: st, 2: opens, 3: other}
	if m := s.attach(); m.Token != "t" || len(m.Streams) != 2 || m.Streams[0].SID != 1 || m.Streams[1].SID != 3 {
		t.Errorf("%+v", m)
	}
}

// Flush is sent over the next connection.
func TestFlushWithoutAConnection(t *testing.T) {
	st := alone(StreamOptions{})
	if err := st.Flush(); err != nil || !st.flush {
		t.Errorf("%v, to be made up for: %v", err, st.flush)
	}
	seq := uint64(3)
	st.unended = []unended{{seq: 3}, {seq: 4}}
	st.atServer = 2
	var words []string
	for _, m := range st.resume(&wire.AttachedStream{SID: 1, ReceivedSeq: &seq, ReceivedCount: 5, CreditLimit: 9}) {
		words = append(words, m.Type())
	}
	if len(words) != 3 || words[0] != "update" || words[1] != "resume" || words[2] != "flush" || st.flush {
		t.Errorf("%v, %v", words, st.flush)
	}
	if st.unended[0].lost || !st.unended[1].lost || st.atServer != 1 || !st.discontinuity || st.sent != 5 ||
		st.limit != 9 {
		t.Errorf("%+v, %d at the server, sent %d of %d", st.unended, st.atServer, st.sent, st.limit)
	}
	st.paused, st.closing = true, true
	words = nil
	for _, m := range st.resume(&wire.AttachedStream{SID: 1}) {
		words = append(words, m.Type())
	}
	if len(words) != 3 || words[1] != "pause" || words[2] != "close" || !st.unended[0].lost || st.atServer != 0 {
		t.Errorf("%v, %+v", words, st.unended)
	}
}

// OnAdvice is called when frames depend on a lost frame.
func TestKeyFrameAfterALoss(t *testing.T) {
	for _, c := range []struct {
		codec     wire.Codec
		gap, asks bool
		want      bool
	}{
		{wire.H264, true, true, true}, {wire.AV1, true, true, true}, {wire.Codec(stream.JPEG), true, true, false},
		{wire.H264, false, true, false}, {wire.H264, true, false, false},
	} {
		st := alone(StreamOptions{})
		st.codec, st.discontinuity = c.codec, c.gap
		if c.asks {
			st.opts.OnAdvice = func(Advice) {}
		}
		if got := st.needsKeyFrame(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// lastSeq is the number before the first frame without an arrived ending.
func TestLastSeq(t *testing.T) {
	st := alone(StreamOptions{})
	if st.lastSeq() != nil {
		t.Error("of a stream without frames")
	}
	st.nextSeq = 9
	if got := st.lastSeq(); got == nil || *got != 8 {
		t.Errorf("all have ended: %v", got)
	}
	st.unended = []unended{{seq: 4, lost: true}, {seq: 6}, {seq: 8}}
	if got := st.lastSeq(); got == nil || *got != 5 {
		t.Errorf("6 is to come: %v", got)
	}
	st.unended = []unended{{seq: 0}}
	if st.lastSeq() != nil {
		t.Error("the first is to come")
	}
}

// TestStreamConfigIsOneObject: Settings are encoded beside the fields.
func TestStreamConfigIsOneObject(t *testing.T) {
	for _, c := range []StreamConfig{{Name: "a"}, {Name: "a", Settings: map[string]any{"width": 3.0}}} {
		text, err := json.Marshal(c)
		var got map[string]any
		if err != nil || json.Unmarshal(text, &got) != nil || got["name"] != "a" ||
			got["width"] != c.Settings["width"] {
			t.Errorf("%s, %v", text, err)
		}
	}
}
