package ws_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/ingest/ws"
	"millrace/internal/wire"
	"millrace/stream"
	"millrace/workers"
)

// v1 is a client of millrace.v1 without knowledge beyond the bytes.
type v1 struct {
	*websocket.Conn
	t     testing.TB
	token string
	id    string
}

// event is any text message of the server.
type event struct {
	Type                  string
	SID                   uint32
	Seq                   uint64
	Code, Message, Reason string
	Fatal, Retryable      bool
	RetryAfterMS          int `json:"retry_after_ms"`
	Session               string
	ResumeToken           string `json:"resume_token"`
	CreditLimit           uint64 `json:"credit_limit"`
	Ack                   uint64
	CaptureUS             int64 `json:"capture_us"`
	Seqs                  [][2]uint64
	Model, Version        string
	T                     any
	TimeLeftMS            int `json:"time_left_ms"`
	FPS                   float64
	KeyFrame              bool
	Width, Height         int
	Policy                map[string]any
	Totals                struct{ Received, Accepted, Results, Drops, Errors uint64 }
	Timing                map[string]int64
	Outputs               []struct {
		Name string
		Data any
	}
	Parameters map[string]any
	Streams    []struct {
		SID         uint32
		Received    uint64  `json:"received_count"`
		ReceivedSeq *uint64 `json:"received_seq"`
		CreditLimit uint64  `json:"credit_limit"`
	}
	binary []byte
}

func (r *rig) v1(path string) *v1 {
	r.t.Helper()
	d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}}
	c, resp, err := d.Dial("ws://"+r.addr+path, nil)
	if err != nil {
		r.t.Fatalf("dial %s: %v (%v)", path, err, resp)
	}
	r.t.Cleanup(func() { c.Close() })
	v := &v1{Conn: c, t: r.t}
	if c.Subprotocol() != wire.Subprotocol {
		r.t.Fatalf("subprotocol %q", c.Subprotocol())
	}
	ready := v.expect("ready")
	if v.token, v.id = ready.ResumeToken, ready.Session; v.token == "" || v.id == "" {
		r.t.Fatalf("%+v", ready)
	}
	return v
}

func (v *v1) ReadMessage() (int, []byte, error) {
	_ = v.SetReadDeadline(time.Now().Add(patience))
	return v.Conn.ReadMessage()
}

func (v *v1) say(text string) {
	v.t.Helper()
	if err := v.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		v.t.Fatal(err)
	}
}

// next returns the next message other than a message about the state of a stream.
func (v *v1) next() event {
	v.t.Helper()
	for {
		if e := v.any(); e.Type != "advise" && e.Type != "stats" {
			return e
		}
	}
}

func (v *v1) any() event {
	v.t.Helper()
	kind, b, err := v.ReadMessage()
	if err != nil {
		v.t.Fatal(err)
	}
	if kind == websocket.BinaryMessage {
		return event{Type: "binary", binary: b}
	}
	var e event
	if err := json.Unmarshal(b, &e); err != nil {
		v.t.Fatalf("%v in %s", err, b)
	}
	return e
}

func (v *v1) expect(kind string) event {
	v.t.Helper()
	e := v.next()
	if e.Type != kind {
		v.t.Fatalf("want %s, got %+v", kind, e)
	}
	return e
}

func (v *v1) expectError(code, field string) event {
	v.t.Helper()
	e := v.expect("error")
	if e.Code != code || !strings.Contains(e.Message, field) {
		v.t.Fatalf("want error %s about %s, got %+v", code, field, e)
	}
	return e
}

// open opens a stream and returns the answer.
func (v *v1) open(sid int, more string) event {
	v.t.Helper()
	v.say(fmt.Sprintf(`{"type":"open","sid":%d%s}`, sid, more))
	return v.expect("opened")
}

// raw is a media message, byte by byte according to the published text.
func raw(kind, codec, flags byte, sid uint32, seq uint64, payload []byte, ext ...byte) []byte {
	b := []byte{1, kind, codec, flags}
	b = binary.LittleEndian.AppendUint32(b, sid)
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = binary.LittleEndian.AppendUint64(b, 1000+seq) // capture_us
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(ext)))
	b = append(b, 0, 0)
	return append(append(b, ext...), payload...)
}

func (v *v1) media(b []byte) {
	v.t.Helper()
	if err := v.WriteMessage(websocket.BinaryMessage, b); err != nil {
		v.t.Fatal(err)
	}
}

func (v *v1) frame(sid uint32, seq uint64) {
	v.t.Helper()
	v.media(raw(1, 0, 0, sid, seq, []byte("x")))
}

const every = `,"policy":{"mode":"every","window":4}`

func TestV1Streams(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	if o := v.open(1, `,"model":"echo"`+every); o.SID != 1 || o.CreditLimit != 4 || o.Policy["mode"] != "every" {
		t.Fatalf("%+v", o)
	}
	if o := v.open(7, `,"model":"echo","outputs":"binary"`); o.CreditLimit != stream.DefaultWindowLatest {
		t.Fatalf("%+v", o)
	}
	for seq := range uint64(3) { // gaps in seq are the client's own
		v.frame(1, 10*seq)
		e := v.expect("result")
		if e.SID != 1 || e.Seq != 10*seq || e.CaptureUS != int64(1000+10*seq) || e.Ack != seq+1 ||
			e.CreditLimit != seq+5 || e.Model != "echo" || e.Version != "1" || e.Timing["received_us"] == 0 ||
			len(e.Outputs) != 1 {
			t.Fatalf("%+v", e)
		}
	}
	v.media(raw(1, 0, 0, 7, 5, []byte("binary")))
	b := v.expect("binary").binary
	h, payload, err := wire.ParseHeader(b, wire.Server)
	if err != nil || h.SID != 7 || h.Seq != 5 || h.CaptureUS != 1005 {
		t.Fatalf("%+v %v", h, err)
	}
	if head, data, err := wire.SplitTensors(payload); err != nil || !strings.Contains(string(head), `"ack":1`) ||
		!strings.HasSuffix(string(data), "binary") {
		t.Fatalf("%s %q %v", head, data, err)
	}
	v.say(`{"type":"ping","t":12345}`)
	if e := v.expect("pong"); fmt.Sprint(e.T) != "12345" {
		t.Errorf("%+v", e)
	}
	v.say(`{"type":"close","sid":1}`)
	if e := v.expect("closed"); e.SID != 1 || e.Reason != "client" || e.Totals.Received != 3 || e.Totals.Results != 3 {
		t.Errorf("%+v", e)
	}
	v.open(1, `,"model":"echo"`) // the sid is free again
	v.media(raw(1, 0, 8, 1, 0, []byte("the last")))
	v.expect("result")
	if e := v.expect("closed"); e.SID != 1 || e.Totals.Received != 1 {
		t.Errorf("%+v", e)
	}
}

func TestV1Tensors(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/models/echo/stream")
	v.open(1, "") // the model of the path
	text := `{"inputs":[{"name":"x","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}}]}`
	body := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	v.media(raw(4, 12, 0, 1, 0, append(append(body, text...), 7, 8, 9)))
	if e := v.expect("result"); e.Outputs[0].Name != "x" {
		t.Errorf("%+v", e)
	}
	text = `{"inputs":[{"name":"x","datatype":"UINT8","shape":[3],"data":[1,2,3]}]}`
	body = binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	v.media(raw(4, 12, 0, 1, 1, append(body, text...)))
	v.expectError("invalid_argument", "binary_data_size")
	v.media(raw(4, 12, 0, 1, 2, []byte{255, 0, 0, 0}))
	v.expectError("invalid_argument", "payload")
	// Samples are bytes for a model of any content.
	v.media(raw(5, 10, 0, 1, 3, []byte{1, 2, 3, 4}))
	v.expect("result")
}

// Each rule is broken once: the named error is sent, and the session continues.
func TestV1Refuses(t *testing.T) {
	r := start(t, ws.Options{Limits: ingest.Limits{MaxMessage: 1 << 20}})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo"`+every)
	seq := uint64(0)
	for _, c := range []struct{ name, text, code, field string }{
		{"no type", `{}`, "invalid_argument", "type"},
		{"unknown type", `{"type":"fly"}`, "unsupported", "type"},
		{"no sid", `{"type":"pause"}`, "invalid_argument", "pause.sid"},
		{"sid of another type", `{"type":"pause","sid":"one"}`, "invalid_argument", ""},
		{"sid too large", `{"type":"pause","sid":4294967296}`, "invalid_argument", ""},
		{"sid not open", `{"type":"pause","sid":9}`, "not_found", "sid"},
		{"sid open already", `{"type":"open","sid":1,"model":"echo"}`, "conflict", "open.sid"},
		{"no model", `{"type":"open","sid":2}`, "invalid_argument", "open.model"},
		{"unknown model", `{"type":"open","sid":2,"model":"nobody"}`, "not_found", "nobody"},
		{"unknown codec", `{"type":"open","sid":2,"model":"echo","codec":"film"}`, "invalid_argument", "open.codec: "},
		{"unknown outputs", `{"type":"open","sid":2,"model":"echo","outputs":"xml"}`, "invalid_argument",
			"open.outputs"},
		{"unknown mode", `{"type":"open","sid":2,"model":"echo","policy":{"mode":"newest"}}`, "invalid_argument",
			"open.policy.mode: "},
		{"window too large", `{"type":"open","sid":2,"model":"echo","policy":{"window":5000}}`, "invalid_argument",
			"open.policy.window: "},
		{"parameter of no type", `{"type":"open","sid":2,"model":"echo","params":{"a":[1]}}`, "invalid_argument",
			"open.params"},
		{"another mode", `{"type":"update","sid":1,"policy":{"mode":"latest"}}`, "conflict", "update.policy.mode: "},
		{"attach too late", `{"type":"attach","token":"x"}`, "conflict", "attach"},
	} {
		v.say(c.text)
		if e := v.expectError(c.code, c.field); e.Fatal {
			t.Errorf("%s: fatal", c.name)
		}
	}
	frame := func(name string, b []byte, code, field string) {
		t.Helper()
		v.media(b)
		if e := v.expectError(code, field); e.Fatal {
			t.Errorf("%s: fatal", name)
		}
	}
	next := func() uint64 { seq++; return seq }
	frame("unknown kind", raw(9, 0, 0, 1, next(), nil), "unsupported", "kind")
	frame("a result", raw(3, 12, 0, 1, next(), nil), "invalid_argument", "kind")
	frame("unknown codec", raw(1, 99, 0, 1, next(), nil), "unsupported", "codec")
	frame("unknown flag", raw(1, 0, 128, 1, next(), nil), "unsupported", "flags")
	frame("audio that is a picture", raw(5, 1, 0, 1, next(), nil), "invalid_argument", "codec")
	frame("film", raw(1, 4, 1, 1, next(), []byte("x")), "invalid_argument", "Annex B")
	frame("nothing", raw(1, 0, 0, 1, next(), nil), "invalid_argument", "empty")
	long := raw(1, 0, 0, 1, next(), nil)
	long[28] = 200
	frame("extension past the message", long, "invalid_argument", "ext_len")
	frame("entry past the extension", raw(1, 0, 0, 1, next(), []byte("x"), 4, 200, 0), "invalid_argument", "ext")
	frame("parameters of no JSON", raw(1, 0, 0, 1, next(), []byte("x"), 4, 1, 0, 'x'), "invalid_argument", "params")
	frame("seq that goes back", raw(1, 0, 0, 1, 1, []byte("x")), "invalid_argument", "seq")
	frame("not open", raw(1, 0, 0, 99, 0, []byte("x")), "not_found", "sid")
	v.frame(1, next())
	if e := v.expect("result"); e.Ack != 12 { // eleven errors of the stream came before
		t.Errorf("%+v", e)
	}

	// Messages of a client that does not speak the protocol.
	other := raw(1, 0, 0, 1, 0, []byte("x"))
	other[0] = 2
	for _, c := range []struct {
		name        string
		kind        int
		message     []byte
		code, field string
		close       int
	}{
		{"short", websocket.BinaryMessage, []byte("short"), "invalid_argument", "header", 4400},
		{"another version", websocket.BinaryMessage, other, "unsupported_version", "version", 4400},
		{"no JSON", websocket.TextMessage, []byte("hello"), "invalid_argument", "", 4400},
		{"text behind it", websocket.TextMessage, []byte(`{"type":"ping","t":0} {}`), "invalid_argument", "", 4400},
		{"too large", websocket.BinaryMessage, make([]byte, 2<<20), "too_large", "limits.max_message",
			websocket.CloseMessageTooBig},
	} {
		v := r.v1("/v2/stream")
		v.open(1, `,"model":"echo"`)
		if err := v.WriteMessage(c.kind, c.message); err != nil {
			t.Fatal(err)
		}
		v.expect("closed")
		if e := v.expectError(c.code, c.field); !e.Fatal {
			t.Errorf("%s: not fatal", c.name)
		}
		v.ends(c.close)
	}
	r.until("one session may be resumed", func() bool { return r.ws.Stats().Resumable == 1 })
}

// ends reads on until the close frame.
func (v *v1) ends(code int) {
	v.t.Helper()
	for {
		kind, b, err := v.ReadMessage()
		if err == nil && kind == websocket.TextMessage {
			continue
		}
		if !websocket.IsCloseError(err, code) {
			v.t.Fatalf("want close %d, got %q %v", code, b, err)
		}
		v.Close()
		return
	}
}

// In every, a frame past the credit is refused at once. In latest, the frame supersedes the waiting frame.
func TestV1Credits(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo"`+every)
	v.say(`{"type":"pause","sid":1}`) // so that nothing is answered meanwhile
	for seq := range uint64(6) {
		v.frame(1, seq)
	}
	for seq := uint64(4); seq < 6; seq++ {
		if e := v.expectError("flow_control", "credit"); e.Seq != seq || e.Ack != seq-3 {
			t.Errorf("%+v", e)
		}
	}
	r.until("its client has to wait", func() bool {
		st := r.ws.Stats()
		return st.Credits == 0 && st.WithoutCredit == 1
	})
	v.say(`{"type":"resume","sid":1}`)
	for seq := range uint64(4) {
		if e := v.expect("result"); e.Seq != seq || e.Ack != seq+3 {
			t.Errorf("%+v", e)
		}
	}
	v.say(`{"type":"update","sid":1,"policy":{"window":9}}`)
	if e := v.expect("credit"); e.CreditLimit != 6+9 {
		t.Errorf("%+v", e)
	}
	r.until("the window is its credit", func() bool {
		st := r.ws.Stats()
		return st.Credits == 9 && st.WithoutCredit == 0
	})

	v.open(2, `,"model":"echo"`)
	v.say(`{"type":"pause","sid":2}`)
	for seq := range uint64(6) {
		v.frame(2, seq)
	}
	for dropped := uint64(0); dropped < 5; {
		e := v.expect("drop")
		for _, span := range e.Seqs {
			dropped += span[1] - span[0] + 1
		}
		if e.Reason != "superseded" || e.SID != 2 || e.Ack != dropped || dropped > 5 {
			t.Errorf("%+v", e)
		}
	}
	v.say(`{"type":"resume","sid":2}`)
	if e := v.expect("result"); e.Seq != 5 || e.Ack != 6 {
		t.Errorf("%+v", e)
	}
}

// A client above the possible rate is told the possible rate.
func TestV1Advice(t *testing.T) {
	t.Parallel()
	r := start(t, ws.Options{AdviseEvery: 400 * time.Millisecond, StatsEvery: time.Second},
		workers.Config{Name: "crawl", Kind: "delay", Params: stream.Params{"fixed": "100ms"}})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"crawl"`)
	go func() { // ends with the connection
		for seq := uint64(0); v.WriteMessage(websocket.BinaryMessage, raw(1, 0, 0, 1, seq, []byte("x"))) == nil; seq++ {
			time.Sleep(10 * time.Millisecond) // the rate of a camera
		}
	}()
	for {
		if e := v.any(); e.Type == "advise" {
			if e.SID != 1 || e.FPS <= 0 || e.FPS > 20 {
				t.Errorf("%+v", e)
			}
			break
		}
	}
	for {
		if e := v.any(); e.Type == "stats" {
			if e.SID != 1 {
				t.Errorf("%+v", e)
			}
			if e.FPS > 0 { // none when the machine stood still for a second
				break
			}
		}
	}
	v.Close()
}

func TestV1PauseFlush(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo"`+every)
	v.say(`{"type":"pause","sid":1}`)
	v.frame(1, 0)
	v.frame(1, 1)
	v.say(`{"type":"ping","t":0}`)
	v.expect("pong") // the messages before were handled, and not answered
	v.say(`{"type":"flush","sid":1}`)
	if e := v.expect("drop"); e.Reason != "flushed" || len(e.Seqs) == 0 ||
		e.Seqs[0] != [2]uint64{0, 1} && e.Seqs[0] != [2]uint64{0, 0} {
		t.Errorf("%+v", e)
	} else if e.Ack < 2 {
		v.expect("drop")
	}
	v.frame(1, 2)
	v.say(`{"type":"resume","sid":1}`)
	if e := v.expect("result"); e.Seq != 2 || e.Ack != 3 {
		t.Errorf("%+v", e)
	}
}

func TestV1Drains(t *testing.T) {
	t.Parallel()
	r := start(t, ws.Options{})
	v, lone := r.v1("/v2/stream"), r.v1("/v2/stream")
	v.open(1, `,"model":"slow"`)
	lone.open(1, `,"model":"slow"`)
	_ = lone.NetConn().Close()
	r.until("it is noticed", func() bool { return r.ws.Stats().Conns == 1 })
	v.frame(1, 0)
	go r.stop()
	seen := map[string]bool{}
	for {
		kind, b, err := v.ReadMessage()
		if err != nil {
			if !websocket.IsCloseError(err, websocket.CloseGoingAway) {
				t.Errorf("%v", err)
			}
			break
		}
		var e event
		if kind == websocket.TextMessage && json.Unmarshal(b, &e) == nil {
			seen[e.Type] = true
		}
	}
	if !seen["goaway"] || !seen["closed"] || !seen["error"] {
		t.Errorf("saw %v", seen)
	}
	r.stop()
}

func TestV1Unload(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"slow"`)
	v.open(2, `,"model":"echo"`)
	if err := r.models.Unload(t.Context(), "slow", ""); err != nil {
		t.Fatal(err)
	}
	if e := v.expect("closed"); e.SID != 1 || e.Reason != "unloaded" {
		t.Errorf("%+v", e)
	}
	v.frame(2, 0)
	v.expect("result")
}
