package ws_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/batching"
	"millrace/ingest/ws"
	"millrace/internal/walkertest"
	"millrace/stream"
	"millrace/workers"
)

func init() {
	workers.Register(workers.Kind{Name: "told", New: func() workers.Worker { return &told{} }})
}

// told answers each frame with the frame's parameters.
type told struct{ workers.Base }

func (*told) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 4}, nil
}

func (*told) Run(_ context.Context, b *batching.Batch) error {
	for _, r := range b.Requests {
		for k, v := range r.Params {
			r.SetResultParam(k, v)
		}
		lease := r.TakeLease()
		r.FinishSingle(stream.Tensor{Name: "n", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{1}}, nil, false)
		lease.Release()
	}
	return nil
}

// An update of the outputs applies to later frames, and not to frames in flight, whenever answered.
func TestUpdateOutputs(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo","policy":{"mode":"every","window":8}`)
	v.say(`{"type":"pause","sid":1}`)
	for seq, form := range []string{"", "none", "binary", "json"} {
		if form != "" {
			v.say(`{"type":"update","sid":1,"outputs":"binary"}`) // never used: no frame comes in between
			v.expect("credit")
			v.say(`{"type":"update","sid":1,"outputs":"` + form + `"}`)
			v.expect("credit")
		}
		v.frame(1, uint64(seq))
	}
	v.say(`{"type":"resume","sid":1}`)
	for seq, want := range []int{1, 0, -1, 1} {
		e := v.next()
		if got := len(e.Outputs); want >= 0 && (e.Type != "result" || e.Seq != uint64(seq) || got != want) ||
			want < 0 && e.Type != "binary" {
			t.Errorf("frame %d: %s with %d outputs", seq, e.Type, got)
		}
	}
	v.say(`{"type":"update","sid":1,"outputs":"none"}`) // with nothing on its way
	v.expect("credit")
	v.frame(1, 9)
	if e := v.expect("result"); len(e.Outputs) != 0 || e.Seq != 9 {
		t.Errorf("%+v", e)
	}
	v.say(`{"type":"update","sid":1,"outputs":"xml"}`)
	v.expectError("invalid_argument", "update.outputs")
}

// The parameters of an update replace the previous parameters, for frames without their own.
func TestUpdateParams(t *testing.T) {
	r := start(t, ws.Options{}, workers.Config{Name: "told", Kind: "told"})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"told","params":{"a":1,"b":"x"},"policy":{"mode":"every","window":8}`)
	own := func(text string) []byte { return append([]byte{4, byte(len(text)), 0}, text...) }
	for i, c := range []struct {
		update string
		ext    []byte
		want   map[string]any
	}{
		{"", nil, map[string]any{"a": 1.0, "b": "x"}},
		{`,"params":{"a":2}`, nil, map[string]any{"a": 2.0}},
		{`,"outputs":"json"`, nil, map[string]any{"a": 2.0}},
		{"", own(`{"c":3}`), map[string]any{"c": 3.0}},
		{"", own(`{}`), map[string]any{}},
		{`,"params":{}`, nil, map[string]any{}},
	} {
		if c.update != "" {
			v.say(`{"type":"update","sid":1` + c.update + `}`)
			v.expect("credit")
		}
		v.media(raw(1, 0, 0, 1, uint64(i), []byte("x"), c.ext...))
		if e := v.expect("result"); fmt.Sprint(e.Parameters) != fmt.Sprint(c.want) {
			t.Errorf("frame %d: %v, want %v", i, e.Parameters, c.want)
		}
	}
	v.say(`{"type":"update","sid":1,"params":{"a":[1]}}`)
	v.expectError("invalid_argument", "update.params")
}

// A stream that needs a state is refused by a model without state.
func TestOpenStateful(t *testing.T) {
	r := start(t, ws.Options{}, workers.Config{Name: "eyes", Kind: "motion"})
	v := r.v1("/v2/stream")
	v.say(`{"type":"open","sid":1,"model":"echo","stateful":true}`)
	v.expectError("unsupported", "open.stateful")
	v.say(`{"type":"open","sid":1,"model":"nobody","stateful":true}`)
	v.expectError("not_found", "nobody")
	v.open(1, `,"model":"eyes","stateful":true`)
	v.open(2, `,"model":"eyes","stateful":false`)
	v.open(3, `,"model":"echo","stateful":false`)
}

// A stream with rules has events, and its model needs tracks.
func TestOpenWithRules(t *testing.T) {
	r := start(t, ws.Options{}, workers.Config{Name: "eyes", Kind: "motion"}, walking)
	v := r.v1("/v2/stream")
	const door = `,"rules":{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1]}]}`
	v.say(`{"type":"open","sid":1,"model":"eyes"` + door + `}`)
	v.expectError("invalid_argument", "open.rules: need objects with ids, and model eyes has none")
	v.say(`{"type":"open","sid":1,"model":"people","rules":{"lines":[{"name":"door","from":[0,0]}]}}`)
	v.expectError("invalid_argument", "open.rules.lines[0].to: is missing")
	v.say(`{"type":"open","sid":1,"model":"people","rules":{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1],
		"classes":["person"]}]}}`)
	v.expectError("invalid_argument", `open.rules.lines[0].classes: "person" is a name`)
	v.open(1, `,"model":"people","policy":{"mode":"every","window":4}`+door)
	found := ""
	for seq := range uint64(8) { // from the right to the left
		pixels := bytes.Repeat([]byte{byte(240 - 32*seq)}, 3*64*48)
		header := raw(1, 8, 0, 1, seq, pixels)
		binary.LittleEndian.PutUint64(header[16:], 1e6+33333*seq)
		binary.LittleEndian.PutUint16(header[24:], 64)
		binary.LittleEndian.PutUint16(header[26:], 48)
		v.media(header)
		e := v.expect("result")
		for _, o := range e.Outputs {
			if o.Name == "events" {
				found += fmt.Sprint(o.Data)
			}
		}
	}
	if strings.Count(found, `"type":"cross"`) != 1 || !strings.Contains(found, `"direction":"in"`) {
		t.Errorf("events %s", found)
	}
}

// walking is a model that sees a walk to the left in darker and darker pictures.
var walking = walkertest.Register()

// A smaller window revokes no credit: frames sent on earlier credit are accepted, and the old limit holds until
// enough frames have ended.
func TestUpdateToASmallerWindow(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo","policy":{"mode":"every","window":8}`)
	v.frame(1, 0)
	v.expect("result")
	v.say(`{"type":"pause","sid":1}`)
	v.frame(1, 1)
	v.say(`{"type":"update","sid":1,"policy":{"window":2}}`)
	if e := v.expect("credit"); e.CreditLimit != 9 || e.Ack != 1 {
		t.Errorf("%+v", e)
	}
	for seq := uint64(2); seq < 10; seq++ { // the ninth and last of the credit is seq 8
		v.frame(1, seq)
	}
	if e := v.expectError("flow_control", "credit"); e.Seq != 9 || e.CreditLimit != 9 {
		t.Errorf("%+v", e)
	}
	v.say(`{"type":"resume","sid":1}`)
	for seq := uint64(1); seq < 9; seq++ {
		if e := v.expect("result"); e.Seq != seq || e.Ack != seq+2 || e.CreditLimit != max(9, e.Ack+2) {
			t.Errorf("%+v", e)
		}
	}
	v.say(`{"type":"update","sid":1,"policy":{"mode":"latest","window":1}}`) // refused as a whole
	v.expectError("conflict", "update.policy.mode: ")
	v.frame(1, 10)
	if e := v.expect("result"); e.Ack != 11 || e.CreditLimit != 13 {
		t.Errorf("%+v", e)
	}
}

// Policy values can be reset: 0 restores the model's default, and omitted fields keep their values.
func TestUpdateTakesBack(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo","policy":{"mode":"every","window":9,"max_fps":0.001,"max_age_ms":1,"deadline_ms":1}`)
	for _, c := range []struct {
		change string
		want   stream.Policy
	}{
		{`{}`, stream.Policy{Mode: stream.Every, Priority: stream.Normal, Window: 9, MaxFPS: 0.001,
			MaxAge: time.Millisecond, Deadline: time.Millisecond}},
		{`{"max_age_ms":0}`, stream.Policy{Mode: stream.Every, Priority: stream.Normal, Window: 9, MaxFPS: 0.001,
			Deadline: time.Millisecond}},
		{`{"deadline_ms":0,"window":20}`, stream.Policy{Mode: stream.Every, Priority: stream.Normal, Window: 20,
			MaxFPS: 0.001}},
		{`{"max_fps":0}`, stream.Policy{Mode: stream.Every, Priority: stream.Normal, Window: 20}},
		{`{"window":0}`, stream.Policy{Mode: stream.Every, Priority: stream.Normal, Window: stream.DefaultWindowEvery}},
	} {
		v.say(`{"type":"update","sid":1,"policy":` + c.change + `}`)
		v.expect("credit")
		r.mu.Lock()
		p := r.streams[0].Policy()
		r.mu.Unlock()
		if p != c.want {
			t.Errorf("%s: %+v, want %+v", c.change, p, c.want)
		}
	}
	for seq := uint64(2); seq < 5; seq++ { // no rate and no age any more
		v.frame(1, seq)
		if e := v.expect("result"); e.Seq != seq {
			t.Errorf("%+v", e)
		}
	}
}

// A client that changes the form between any two frames while a frame is unanswered is refused at the bound of the
// memory for forms, and only until the frame has its result.
func TestUpdateOutputsIsBounded(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo","policy":{"mode":"latest","window":8}`)
	v.say(`{"type":"pause","sid":1}`)
	forms := []string{"none", "json"}
	v.frame(1, 0)
	taken, seq := 0, uint64(0)
	for ; ; taken++ {
		v.say(`{"type":"update","sid":1,"outputs":"` + forms[taken%2] + `","policy":{"window":` +
			strconv.Itoa(min(taken+1, stream.MaxWindow)) + `}}`)
		e := v.next()
		for e.Type == "drop" {
			e = v.next()
		}
		if e.Type == "error" {
			if e.Code != "flow_control" || !strings.HasPrefix(e.Message, "update.outputs") {
				t.Fatalf("%+v", e)
			}
			break
		}
		if e.Type != "credit" || taken > stream.MaxWindow {
			t.Fatalf("%+v after %d updates", e, taken)
		}
		seq++
		v.frame(1, seq)
	}
	if taken != stream.MaxWindow {
		t.Errorf("%d updates were taken", taken)
	}
	v.say(`{"type":"update","sid":1,"outputs":"json","policy":{"window":1}}`)
	v.expectError("flow_control", "update.outputs")
	if n := r.stream(0).Policy().Window; n != stream.MaxWindow {
		t.Errorf("an update that was refused has set the window to %d", n)
	}
	v.say(`{"type":"resume","sid":1}`)
	for {
		e := v.next()
		if e.Type == "result" {
			if e.Seq != seq || len(e.Outputs) != 1 {
				t.Errorf("%+v", e)
			}
			break
		}
	}
	v.say(`{"type":"update","sid":1,"outputs":"none"}`)
	v.expect("credit")
}
