package inference

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/ingest"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
)

// call decodes a request in JSON.
func call(t *testing.T, text string) *Call {
	t.Helper()
	c := &Call{}
	c.Use(buf.NewPool(0), nil)
	body, err := c.LeaseBody(len(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := oip.DecodeRequest(&c.Request, body[:copy(body, text)], -1, c.LeaseTensor, oip.Limits{}); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c
}

// Parameters of the protocol are applied, or refused by name. The model gets all other parameters.
func TestParameters(t *testing.T) {
	m := &stream.Model{Name: "m", Outputs: []stream.TensorSpec{{Name: "y"}}, MaxBatch: 1}
	request := func(params string) string {
		return `{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}],"parameters":{` + params + `}}`
	}
	input := func(params string) string {
		return `{"inputs":[{"name":"w","datatype":"INT8","shape":[1],"data":[1]},{"name":"x","datatype":"BYTES",` +
			`"shape":[1],"data":["a"],"parameters":{` + params + `}}]}`
	}
	output := func(params string) string {
		return `{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}],"outputs":[{"name":"y","parameters":{` + params + `}}]}`
	}
	for _, c := range []struct {
		text  string
		field string // of the error, "" = none
		code  stream.Code
		model string // the parameters for the model
	}{
		{request(``), "", "", "map[]"},
		{request(`"a":1,"b":"x"`), "", "", "map[a:1 b:x]"},
		{request(`"priority":0,"timeout":0,"sequence_id":0,"sequence_start":false,"sequence_end":false,"a":1`), "", "",
			"map[a:1]"},
		{request(`"sequence_id":"","sequence_end":false`), "", "", "map[]"},
		{request(`"binary_data_output":true`), "", "", "map[]"},
		{request(`"priority":-1`), "parameters.priority", stream.InvalidArgument, ""},
		{request(`"priority":"high"`), "parameters.priority", stream.InvalidArgument, ""},
		{request(`"timeout":-1`), "parameters.timeout", stream.InvalidArgument, ""},
		{request(`"timeout":1.5`), "parameters.timeout", stream.InvalidArgument, ""},
		{request(`"sequence_id":7`), "parameters.sequence_id", stream.InvalidArgument, ""}, // the model keeps no state
		{request(`"sequence_id":"s"`), "parameters.sequence_id", stream.InvalidArgument, ""},
		{request(`"sequence_id":true`), "parameters.sequence_id", stream.InvalidArgument, ""},
		{request(`"sequence_id":-1`), "parameters.sequence_id", stream.InvalidArgument, ""},
		{request(`"sequence_start":true`), "parameters.sequence_id", stream.InvalidArgument, ""},
		{request(`"sequence_end":true,"sequence_id":0`), "parameters.sequence_id", stream.InvalidArgument, ""},
		{request(`"sequence_start":1`), "parameters.sequence_start", stream.InvalidArgument, ""},
		{request(`"triton_x":1`), "parameters.triton_x", stream.Unsupported, ""},
		{input(`"content_type":"str"`), "", "", "map[]"},
		{input(`"content_type":"base64"`), "inputs[1].parameters.content_type", stream.InvalidArgument, ""},
		{input(`"scale":1`), "inputs[1].parameters.scale", stream.InvalidArgument, ""},
		{output(`"binary_data":false,"classification":2`), "", "", "map[]"},
		{output(`"classification":0`), "outputs[0].parameters.classification", stream.InvalidArgument, ""},
		{output(`"classification":"3"`), "outputs[0].parameters.classification", stream.InvalidArgument, ""},
		{output(`"shared_memory_handle":"r"`), "outputs[0].parameters.shared_memory_handle", stream.InvalidArgument,
			""},
		{output(`"top":1`), "outputs[0].parameters.top", stream.InvalidArgument, ""},
	} {
		k := call(t, c.text)
		f, err := k.Frame(m)
		var coded *stream.Error
		switch errors.As(err, &coded); {
		case c.field != "":
			if coded == nil || coded.Field != c.field || coded.Code != c.code {
				t.Errorf("%s: %v", c.text, err)
			}
		case err != nil || fmt.Sprint(f.Params) != c.model:
			t.Errorf("%s: %v, %v", c.text, f.Params, err)
		}
		f.Lease.Release()
		pool := k.pool
		k.Reset()
		if n := pool.Stats().Leases; n != 0 {
			t.Errorf("%s: %d leases", c.text, n)
		}
	}
}

// The frame has the priority and the time-out of the request.
func TestQueueParameters(t *testing.T) {
	for params, want := range map[string]stream.Frame{
		`"priority":0,"timeout":0`:    {},
		`"priority":1,"timeout":1`:    {Priority: stream.High, QueueTimeout: time.Microsecond},
		`"priority":2,"timeout":2500`: {Priority: stream.Normal, QueueTimeout: 2500 * time.Microsecond},
		`"priority":3`:                {Priority: stream.Low},
		`"priority":4294967297`:       {Priority: stream.Low},
		`"priority":9223372036854775807,"timeout":9223372036854775807`: {Priority: stream.Low,
			QueueTimeout: math.MaxInt64 / 1000 * time.Microsecond},
	} {
		k := call(t, `{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}],"parameters":{`+params+`}}`)
		f, err := k.Frame(&stream.Model{Name: "m", MaxBatch: 1})
		if err != nil || f.Priority != want.Priority || f.QueueTimeout != want.QueueTimeout || len(f.Params) != 0 {
			t.Errorf("%s: %v, %v, %v: %v", params, f.Priority, f.QueueTimeout, f.Params, err)
		}
		f.Lease.Release()
		k.Reset()
	}
}

// TestClassification: the largest elements of each row come with their places and
// labels.
func TestClassification(t *testing.T) {
	nan := float32(math.NaN())
	flat := &stream.Model{Name: "m", MaxBatch: 1, Axis: stream.NoAxis, Outputs: []stream.TensorSpec{{Name: "y"}}}
	rows := &stream.Model{Name: "m", MaxBatch: 8, Outputs: []stream.TensorSpec{{Name: "y"}},
		Labels: map[string][]string{"y": {"cat", "dog", "äpple"}}}
	bytes := func(d stream.Datatype, shape []int, data ...byte) stream.Tensor {
		return stream.Tensor{Name: "y", Datatype: d, Shape: shape, Data: data}
	}
	floats := func(shape []int, v ...float32) stream.Tensor {
		return stream.Tensor{Name: "y", Datatype: stream.Float32, Shape: shape, Data: stream.AppendFloat32(nil, v...)}
	}
	for _, c := range []struct {
		m     *stream.Model
		out   stream.Tensor
		n     int
		shape string
		want  string // "" = an error
	}{
		{flat, floats([]int{4}, 1, 3, 2, -1), 2, "[2]", "3.000000:1 2.000000:2"},
		{flat, floats([]int{2, 2}, 1, 3, 2, -1), 9, "[4]", "3.000000:1 2.000000:2 1.000000:0 -1.000000:3"},
		{flat, floats([]int{3}, nan, 1, 1), 3, "[3]", "1.000000:1 1.000000:2 NaN:0"},
		{flat, floats(nil, 0.5), 1, "[1]", "0.500000:0"},
		{flat, floats([]int{0}), 1, "[0]", ""},
		{rows, floats([]int{2, 3}, 1, 3, 2, 9, 8, 7), 1, "[2 1]", "3.000000:1:dog 9.000000:0:cat"},
		{rows, floats([]int{1, 4}, 1, 3, 5, 7), 2, "[1 2]", "7.000000:3 5.000000:2:äpple"},
		{rows, floats([]int{0, 4}), 2, "[0 0]", ""},
		{flat, bytes(stream.Int64, []int{2}, 255, 255, 255, 255, 255, 255, 255, 127, 254, 255, 255, 255, 255, 255, 255,
			255), 2, "[2]", "9223372036854775807:0 -2:1"},
		{flat, bytes(stream.Uint8, []int{3}, 7, 255, 8), 1, "[1]", "255:1"},
		{flat, bytes(stream.Bytes, []int{1}, 0, 0, 0, 0), 1, "error", ""},
	} {
		k := call(t, fmt.Sprintf(`{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}],`+
			`"outputs":[{"name":"y","parameters":{"classification":%d}}]}`, c.n))
		k.Result = &stream.Result{Model: c.m, Outputs: []stream.Tensor{c.out}}
		err := k.Reply()
		if c.shape == "error" {
			if stream.CodeOf(err) != stream.InvalidArgument ||
				!strings.Contains(err.Error(), "outputs[0].parameters.classification") {
				t.Error(err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got := k.Response.Outputs[0]
		var words []string
		for data := got.Data; len(data) > 0; {
			var one []byte
			one, data, _ = oip.NextBytes(data)
			words = append(words, string(one))
		}
		if got.Datatype != oip.Bytes || fmt.Sprint(got.Shape) != c.shape || strings.Join(words, " ") != c.want {
			t.Errorf("%+v top %d: %v %v %q", c.out, c.n, got.Datatype, got.Shape, words)
		}
		if fmt.Sprint(c.out.Shape) != fmt.Sprint(k.Result.Outputs[0].Shape) {
			t.Error("the worker's shape was changed")
		}
		k.Reset()
	}
}

// The elements and their text are in leased memory, released with the result. Without memory the request is refused.
func TestClassificationMemory(t *testing.T) {
	const elements = 1 << 15
	m := &stream.Model{Name: "m", MaxBatch: 1, Axis: stream.NoAxis, Outputs: []stream.TensorSpec{{Name: "y"}}}
	data := make([]byte, elements)
	for i := range data {
		data[i] = byte(i * 7919 >> 5)
	}
	mem := buf.NewPool(0)
	// each twice: the pool has memory the second time
	for i, n := range []int{elements, elements, 1, 1, 3, 3, 1000, 1000, elements - 1, elements - 1} {
		k := call(t, fmt.Sprintf(`{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}],`+
			`"outputs":[{"name":"y","parameters":{"classification":%d}}]}`, n))
		k.Use(mem, nil)
		lease, _ := mem.Copy(data)
		k.Result = &stream.Result{Model: m, Lease: lease, Contiguous: true,
			Outputs: []stream.Tensor{{Name: "y", Datatype: stream.Uint8, Shape: []int{elements}, Data: lease.Bytes()}}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := k.Reply(); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; i%2 == 1 && grown > elements/4 {
			t.Errorf("top %d: %d bytes outside of leases", n, grown)
		}
		want := make([]int, elements)
		for i := range want {
			want[i] = i
		}
		slices.SortStableFunc(want, func(a, b int) int { return int(data[b]) - int(data[a]) })
		var text []byte
		rest := k.Response.Outputs[0].Data
		for _, i := range want[:n] {
			text = oip.AppendBytes(text, fmt.Appendf(nil, "%d:%d", data[i], i))
		}
		if !slices.Equal(rest, text) || k.Result.Contiguous {
			t.Errorf("top %d: the elements are others", n)
		}
		k.Reset()
		if left := mem.Stats(); left.Leases != 0 {
			t.Errorf("top %d: %+v", n, left)
		}
		k = call(t, fmt.Sprintf(`{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}],`+
			`"outputs":[{"name":"y","parameters":{"classification":%d}}]}`, n))
		k.Use(buf.NewPool(1), nil)
		k.Result = &stream.Result{Model: m, Outputs: []stream.Tensor{{Name: "y", Datatype: stream.Uint8,
			Shape: []int{elements}, Data: data}}}
		if err := k.Reply(); !errors.Is(err, buf.ErrBudget) {
			t.Errorf("top %d without memory: %v", n, err)
		}
		k.Reset()
	}
}

// The sequence of a request, named by a number or a text.
func TestSequence(t *testing.T) {
	m := &stream.Model{Name: "m", Stateful: true, MaxBatch: 1}
	for params, want := range map[string]struct {
		of    ingest.Sequence
		model string
		field string
	}{
		`"sequence_id":0,"sequence_start":false,"a":1`: {model: "map[a:1]"},
		`"sequence_id":7,"sequence_start":true,"priority":0`: {
			of:    ingest.Sequence{ID: ingest.SequenceID{Number: 7}, Start: true},
			model: "map[sequence_id:7 sequence_start:true]"},
		`"sequence_end":true,"sequence_id":18446744073709551615`: {
			of:    ingest.Sequence{ID: ingest.SequenceID{Number: math.MaxUint64}, End: true},
			model: "map[sequence_end:true sequence_id:-1]"},
		`"sequence_id":"7"`: {of: ingest.Sequence{ID: ingest.SequenceID{Text: "7"}}, model: "map[sequence_id:7]"},
		`"sequence_id":"` + strings.Repeat("x", 129) + `"`: {field: "parameters.sequence_id"},
		`"sequence_id":1.5`:     {field: "parameters.sequence_id"},
		`"sequence_id":-1`:      {field: "parameters.sequence_id"},
		`"sequence_start":true`: {field: "parameters.sequence_id"},
	} {
		k := call(t, `{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}],"parameters":{`+params+`}}`)
		f, err := k.Frame(m)
		var coded *stream.Error
		switch errors.As(err, &coded); {
		case want.field != "":
			if coded == nil || coded.Field != want.field || coded.Code != stream.InvalidArgument {
				t.Errorf("%s: %v", params, err)
			}
		case err != nil || k.Sequence != want.of || fmt.Sprint(f.Params) != want.model:
			t.Errorf("%s: %+v, %v, %v", params, k.Sequence, f.Params, err)
		}
		f.Lease.Release()
		k.Reset()
		if k.Sequence != (ingest.Sequence{}) {
			t.Error("the next request would be of the same sequence")
		}
	}
}
