package ws

import (
	"encoding/json"
	"errors"
	"net/url"
	"testing"

	"millrace/internal/buf"
	"millrace/stream"
)

func sample(outputs ...stream.Tensor) *stream.Result {
	return &stream.Result{
		Outcome: stream.Answered, Seq: 7, CaptureUS: 12, Model: &stream.Model{Name: "spotter", Version: "1"},
		Outputs: outputs, Width: 640, Height: 480, BatchSize: 4,
		Timing: stream.Timing{Received: 1000, Dequeued: 300_000, Started: 500_000, Done: 9_000_000},
	}
}

func scores() stream.Tensor {
	return stream.Tensor{Name: "scores", Datatype: stream.Float32, Shape: []int{1, 3}, Data: stream.AppendFloat32(nil, 0.5, 0.25, 1)}
}

// TestReplies pins the text of replies.
func TestReplies(t *testing.T) {
	var e encoder
	r := sample(scores())
	text, isBinary := e.encode(r, asJSON, source{}, nil)
	if isBinary || !json.Valid(text) {
		t.Fatalf("%s", text)
	}
	var m map[string]any
	_ = json.Unmarshal(text, &m)
	delete(m["timing"].(map[string]any), "received_us") // the time of day
	got, _ := json.Marshal(m)
	want := `{"batch":4,"height":480,"model":"spotter","outputs":[{"data":[0.5,0.25,1],"datatype":"FP32","name":"scores","shape":[1,3]}],` +
		`"seq":7,"timing":{"prepare_us":200,"queue_us":299,"run_us":8500,"total_us":8999},"width":640}`
	if string(got) != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	for _, c := range []struct {
		r    stream.Result
		want string
	}{
		{stream.Result{Outcome: stream.Dropped, Reason: stream.Stale, Seq: 7}, `{"seq":7,"dropped":"stale"}`},
		{stream.Result{Outcome: stream.Failed, Seq: 8, Err: stream.Errorf(stream.Unsupported, "codec", `not a "picture"`)},
			`{"seq":8,"error":{"code":"unsupported","message":"codec: not a \"picture\""}}`},
		{stream.Result{Outcome: stream.Failed, Seq: 9, Err: stream.Errorf(stream.Unavailable, "", "later")},
			`{"seq":9,"error":{"code":"unavailable","message":"later","retryable":true}}`},
		{stream.Result{Outcome: stream.Failed, Err: errors.New("odd")}, `{"seq":0,"error":{"code":"internal","message":"odd"}}`},
	} {
		if text, _ := e.encode(&c.r, asBinary, source{}, nil); string(text) != c.want {
			t.Errorf("%s\nwant %s", text, c.want)
		}
	}
	if text := string(errorMessage(stream.Errorf(stream.Draining, "", "end"))); text != `{"error":{"code":"draining","message":"end","retryable":true}}` {
		t.Error(text)
	}
}

// TestShortNames has the names that leave the least room for what is written
// over.
func TestShortNames(t *testing.T) {
	var e encoder
	r := sample(scores())
	r.Seq, r.Params = 0, stream.Params{"b": true, "a": "x", "c": int64(1), "d": 1.5}
	for _, name := range []string{"", "m"} {
		r.Model.Name = name
		if text, _ := e.encode(r, asJSON, source{width: 1, height: 2, pulled: true}, nil); !json.Valid(text) {
			t.Errorf("%s", text)
		}
	}
}

// TestEncodeAllocations pins that a reply costs nothing once the encoder's
// memory has grown.
func TestEncodeAllocations(t *testing.T) {
	pool := buf.NewPool(0)
	lease, err := pool.Lease(12)
	if err != nil {
		t.Fatal(err)
	}
	copy(lease.Bytes(), scores().Data)
	for name, c := range map[string]struct {
		form outputs
		edit func(*stream.Result)
	}{
		"json":              {asJSON, func(*stream.Result) {}},
		"none":              {asNone, func(*stream.Result) {}},
		"binary, assembled": {asBinary, func(*stream.Result) {}},
		"drop":              {asJSON, func(r *stream.Result) { r.Outcome, r.Reason = stream.Dropped, stream.Superseded }},
	} {
		var e encoder
		r := sample(scores(), scores())
		c.edit(r)
		if n := testing.AllocsPerRun(100, func() { e.encode(r, c.form, source{}, nil) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	var e encoder
	r := sample(scores())
	r.Outputs[0].Data = lease.Bytes()
	r.Lease, r.Contiguous = lease, true
	msg, isBinary := e.encode(r, asBinary, source{}, nil)
	if !isBinary || &msg[len(msg)-1] != &lease.Bytes()[lease.Len()-1] {
		t.Error("the tensors were copied")
	}
	r.Release()
}

func FuzzOrder(f *testing.F) {
	for _, s := range []string{`{"url":"rtsp://x/y","model":"m"}`, `{"stop":true}`, `{`, `[]`, `{"url":1}`, "\x00", `{"url":"a"}{}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := parseOrder(text)
		switch {
		case err != nil && stream.CodeOf(err) != stream.InvalidArgument:
			t.Errorf("%v", err)
		case err == nil && o.Stop == (o.URL != ""):
			t.Errorf("%+v", o)
		}
		if err != nil && !json.Valid(errorMessage(err)) {
			t.Errorf("%q makes %s", text, errorMessage(err))
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{"codec=rgb24&width=4&height=4", "policy=every&window=3&max_age_ms=1", "max_fps=1e309", "outputs=json", "window=%00", "x=y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q := query{codec: stream.Auto}
		for k, vs := range values {
			for _, v := range vs {
				if err == nil {
					err = q.set(k, v)
				}
			}
		}
		if err == nil {
			err = q.check()
		}
		if err == nil {
			err = q.policy.Validate()
		}
		if c := stream.CodeOf(err); err != nil && c != stream.InvalidArgument && c != stream.Unsupported {
			t.Errorf("%v", err)
		}
	})
}
