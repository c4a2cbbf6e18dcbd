package plain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"millrace/ingest/ws/conn"
	"millrace/ingest/ws/query"
	"millrace/internal/oip"
	"millrace/internal/wire"
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
	return stream.Tensor{Name: "scores", Datatype: stream.Float32, Shape: []int{1, 3},
		Data: stream.AppendFloat32(nil, 0.5, 0.25, 1)}
}

// TestResults checks the text of results, for frames of clients and frames of pulled videos.
func TestResults(t *testing.T) {
	const timing = `"timing":{"prepare_us":200,"queue_us":299,"run_us":8500,"total_us":8999},"width":640}`
	const outputs = `"outputs":[{"data":[0.5,0.25,1],"datatype":"FP32","name":"scores","shape":[1,3]}],`
	for _, c := range []struct {
		form conn.Outputs
		from *videoInfo
		want string
	}{
		{conn.AsJSON, nil, `{"batch":4,"height":480,"model":"spotter",` + outputs + `"seq":7,` + timing},
		{conn.AsNone, nil, `{"batch":4,"height":480,"model":"spotter","seq":7,` + timing},
		{conn.AsJSON, &videoInfo{Width: 1280, Height: 720}, `{"batch":4,"height":480,"model":"spotter",` + outputs +
			`"pts_us":12,"seq":7,"source_height":720,"source_width":1280,` + timing},
		{conn.AsNone, &videoInfo{}, `{"batch":4,"height":480,"model":"spotter","pts_us":12,"seq":7,` + timing},
	} {
		text, isBinary, err := plainResult(&conn.Encoder{}, sample(scores()), &query.Options{Outputs: c.form}, c.from)
		var m map[string]any
		if err != nil || isBinary || json.Unmarshal(text, &m) != nil {
			t.Fatalf("%s %v", text, err)
		}
		delete(m["timing"].(map[string]any), "received_us") // the time of day
		if got, _ := json.Marshal(m); string(got) != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// A result in binary form contains the size of the pulled video, if known.
func TestBinaryResults(t *testing.T) {
	for _, c := range []struct {
		from *videoInfo
		want string
	}{
		{nil, ""}, {&videoInfo{}, ""}, {&videoInfo{Width: 1280, Height: 720},
			"source_width=1280 source_height=720 "},
	} {
		msg, isBinary, err := plainResult(&conn.Encoder{}, sample(scores()), &query.Options{Outputs: conn.AsBinary},
			c.from)
		var m wire.Result
		var reply oip.InferResponse
		if err == nil {
			err = wire.ParseResult(bytes.Clone(msg), &m, &reply, func(n int) []byte { return make([]byte, n) })
		}
		got := ""
		for _, p := range reply.Params {
			got += fmt.Sprintf("%s=%d ", p.Key, p.Int)
		}
		if err != nil || !isBinary || got != c.want || m.Seq != 7 || m.Width != 640 || m.Batch != 4 {
			t.Errorf("%+v: %q, %+v, %v", c.from, got, m, err)
		}
	}
}

// A result costs nothing once the encoder's memory has grown.
func TestResultAllocations(t *testing.T) {
	for _, form := range []conn.Outputs{conn.AsJSON, conn.AsNone, conn.AsBinary} {
		var e conn.Encoder
		r := sample(scores(), scores())
		// a parameter of Open Inference Protocol needs a string
		q := &query.Options{Outputs: form, Traced: form != conn.AsBinary}
		if n := testing.AllocsPerRun(100, func() { _, _, _ = plainResult(&e, r, q, nil) }); n > 0 {
			t.Errorf("form %d: %v allocations", form, n)
		}
	}
}
