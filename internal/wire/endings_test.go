package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestAddSeq(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		near := rapid.SampledFrom([]uint64{0, 1 << 40, math.MaxUint64 - 20}).Draw(t, "near")
		var ranges []Range
		want := map[uint64]bool{}
		for _, d := range rapid.SliceOf(rapid.Uint64Range(0, 20)).Draw(t, "seqs") {
			ranges = AddSeq(ranges, near+d)
			want[near+d] = true
		}
		n := 0
		for i, r := range ranges {
			if r[0] > r[1] || i > 0 && r[0] <= ranges[i-1][1]+1 {
				t.Fatalf("not coalesced: %v", ranges)
			}
			for d := range r[1] - r[0] + 1 {
				if n++; !want[r[0]+d] {
					t.Fatalf("%d was not added: %v", r[0]+d, ranges)
				}
			}
		}
		if n != len(want) {
			t.Fatalf("%d seqs of %d: %v", n, len(want), ranges)
		}
	})
}

func TestHotMessagesComeBack(t *testing.T) {
	back := func(t *rapid.T, m Message) {
		text, err := AppendControl(nil, m)
		if err != nil || !json.Valid(text) {
			t.Fatalf("%q, %v", text, err)
		}
		got, err := ParseControl(text, Server)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Fatalf("%s is read as %+v, %v", text, got, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringN(1, 40, MaxName)
		number := rapid.IntRange(0, MaxSide)
		r := &Result{
			SID: rapid.Uint32().Draw(t, "sid"), Seq: rapid.Uint64().Draw(t, "seq"), Ack: rapid.Uint64().Draw(t, "ack"),
			Limit: rapid.Uint64().Draw(t, "limit"), CaptureUS: rapid.Int64().Draw(t, "capture"),
			Model: word.Draw(t, "model"), Version: word.Draw(t, "version"), Batch: number.Draw(t, "batch"),
			Width: number.Draw(t, "width"), Height: number.Draw(t, "height"), Partial: rapid.Bool().Draw(t, "partial"),
		}
		for _, p := range []*int64{&r.Timing.ReceivedUS, &r.Timing.QueueUS, &r.Timing.PrepareUS, &r.Timing.RunUS,
			&r.Timing.TotalUS} {
			*p = rapid.Int64Range(0, 3).Draw(t, "moment")
		}
		if rapid.Bool().Draw(t, "with outputs") {
			r.Outputs = json.RawMessage(`[1,{"a":"]"}]`)
		}
		back(t, r)

		d := &Drop{SID: r.SID, Reason: word.Draw(t, "reason"), Ack: r.Ack, Limit: r.Limit}
		for _, seq := range rapid.SliceOfN(rapid.Uint64(), 1, 20).Draw(t, "seqs") {
			d.Seqs = AddSeq(d.Seqs, seq)
		}
		back(t, d)
		back(t, &Credit{r.SID, r.Seq, r.Ack})

		e := &ErrorMessage{Code: word.Draw(t, "code"), Message: word.Draw(t, "message"), Retryable: r.Partial,
			RetryAfterMS: r.Width}
		if rapid.Bool().Draw(t, "of a frame") {
			e.SID, e.Seq, e.Ack, e.Limit = &r.SID, &r.Seq, r.Ack, r.Limit
		}
		back(t, e)
	})
}

// TestHead: a head and further members make a whole message.
func TestHead(t *testing.T) {
	r := &Result{SID: 1, Seq: 2, Ack: 3, Timing: Timing{TotalUS: 4}}
	text := append(AppendResultHead(nil, r), `,"outputs":[]}`...)
	m, err := ParseControl(text, Server)
	if got, ok := m.(*Result); err != nil || !ok || string(got.Outputs) != "[]" || got.Timing.TotalUS != 4 {
		t.Fatalf("%s: %+v, %v", text, m, err)
	}
}

func FuzzControl(f *testing.F) {
	for _, c := range texts {
		f.Add([]byte(c.text), c.from == Server)
	}
	f.Add([]byte(`{"\u0074ype":"open","sid":1,"params":{"\ud800":1e-9},"x":[[{"y":"\\\""}]]}`), false)
	f.Fuzz(func(t *testing.T, text []byte, server bool) {
		from := Client
		if server {
			from = Server
		}
		kept := bytes.Clone(text)
		m, err := ParseControl(slices.Clip(text), from)
		if !bytes.Equal(kept, text) {
			t.Fatal("the text was changed")
		}
		if err != nil {
			sound(t, err)
			return
		}
		if !json.Valid(text) {
			t.Fatalf("taken, but not JSON: %q", text)
		}
		out, err := AppendControl(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseControl(out, from)
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%s\nbecame %s\n%+v, %v", text, out, again, err)
		}
	})
}

func FuzzParams(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":1.0,"c":"x","d":true}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParseParams(text)
		if err != nil {
			sound(t, err)
			return
		}
		out, err := p.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseParams(out)
		if err != nil && len(out) <= math.MaxUint16 || err == nil && !reflect.DeepEqual(again, p) {
			t.Fatalf("%s became %s, %v", text, out, err)
		}
	})
}

// TestAllocations pins the allocations for a media message and its ending.
func TestAllocations(t *testing.T) {
	frame := unhex(t, golden["frame"].bytes)
	h := golden["frame"].header
	result := golden["result"].header
	room := make([]byte, 0, 4096)
	ack := &Result{SID: 1, Seq: 7, Ack: 8, CaptureUS: 9, Version: "1", Batch: 3, Width: 640, Height: 480,
		Timing: Timing{1, 2, 3, 4, 5}}
	dropped := &Drop{SID: 1, Reason: "superseded", Seqs: make([]Range, 0, 8)}
	var credit Message = &Credit{1, 2, 3}
	sid, seq := uint32(1), uint64(2)
	for name, f := range map[string]func(){
		"header read": func() {
			if _, payload, err := ParseHeader(frame, Client); err != nil || len(payload) != 2 {
				t.Fatal(err)
			}
		},
		"header written": func() { room = AppendHeader(room[:0], &h) },
		"headroom": func() {
			PutHeader(room[:PutHeader(room[:256], &result)], &result)
		},
		"tensors": func() {
			room = AppendTensorsPrefix(room[:0], h.Ext.Params)
			if _, _, err := SplitTensors(room); err != nil {
				t.Fatal(err)
			}
		},
		"result": func() { room = AppendResult(room[:0], ack) },
		"drop": func() {
			dropped.Seqs = AddSeq(AddSeq(dropped.Seqs[:0], 5), 6)
			room = AppendDrop(room[:0], dropped)
		},
		"credit": func() { room, _ = AppendControl(room[:0], credit) },
		"error": func() {
			room = AppendError(room[:0], &ErrorMessage{Code: "flow_control", Message: "m", SID: &sid, Seq: &seq})
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
