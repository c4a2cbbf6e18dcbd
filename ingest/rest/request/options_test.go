package request

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"millrace/stream"
)

// The accepted values of each option, up to the limits.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		key, value string
		want       Options
	}{
		{"codec", "jpeg", Options{Codec: stream.JPEG, HasCodec: true}},
		{"width", "1", Options{Width: 1}},
		{"width", "65535", Options{Width: 65535}},
		{"height", "1", Options{Height: 1}},
		{"height", "65535", Options{Height: 65535}},
		{"datatype", "FP32", Options{Datatype: stream.Float32}},
		{"shape", "", Options{HasShape: true}},
		{"shape", "0, 3,-1", Options{Shape: []int{0, 3, -1}, HasShape: true}},
		{"shape", "1" + strings.Repeat(",1", 63), Options{Shape: ones(64), HasShape: true}},
		{"deadline_ms", "0.5", Options{Deadline: 500 * time.Microsecond}},
		{"deadline_ms", "3600000", Options{Deadline: time.Hour}},
		{"outputs", "json", Options{Outputs: AsJSON}},
		{"outputs", "binary", Options{Outputs: AsBinary}},
		{"outputs", "none", Options{Outputs: AsNone}},
	} {
		var o Options
		if err := o.Set(c.key, c.value); err != nil || !reflect.DeepEqual(o, c.want) {
			t.Errorf("%s=%s: %+v, %v; want %+v", c.key, c.value, o, err, c.want)
		}
	}
	for _, c := range [][2]string{
		{"codec", "film"}, {"width", "0"}, {"width", "65536"}, {"width", "1.5"}, {"height", "-1"}, {"height", ""},
		{"roi", "1,2"}, {"datatype", "FLOAT"},
		{"shape", "-2"}, {"shape", "1,x"}, {"shape", "1" + strings.Repeat(",1", 64)}, {"shape", "1,"},
		{"deadline_ms", "0"}, {"deadline_ms", "-1"}, {"deadline_ms", "3600000.1"}, {"deadline_ms", "NaN"},
		{"deadline_ms", "1e-9"}, {"deadline_ms", "soon"},
		{"outputs", "xml"}, {"outputs", ""}, {"with", "640"},
	} {
		var o Options
		err := o.Set(c[0], c[1])
		var coded *stream.Error
		if !errors.As(err, &coded) || coded.Code != stream.InvalidArgument || coded.Field != c[0] {
			t.Errorf("%s=%s: %v", c[0], c[1], err)
		}
	}
}

// TestOptionsKeepNothing changes the memory of a query after setting its options, and sets options without
// allocating.
func TestOptionsKeepNothing(t *testing.T) {
	var o Options
	text := []byte("datatypeUINT8shape1,30720outputsbinarycolourred")
	view := func(from, to int) string { return unsafe.String(&text[from], to-from) }
	set := func() {
		o.Reset()
		for _, at := range [][3]int{{0, 8, 13}, {13, 18, 25}, {25, 32, 38}} {
			if err := o.Set(view(at[0], at[1]), view(at[1], at[2])); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := testing.AllocsPerRun(100, set); n > 0 {
		t.Errorf("%v allocations", n)
	}
	unknown, bad := o.Set(view(38, 44), view(44, 47)), o.Set(view(13, 18), view(44, 47))
	clear(text)
	if want := (Options{Datatype: stream.Uint8, Shape: []int{}, HasShape: true,
		Outputs: AsBinary}); !reflect.DeepEqual(o, want) {
		t.Errorf("%+v, want %+v", o, want)
	}
	for _, c := range []struct {
		err  error
		want string
	}{{unknown, "colour is not a query option"}, {bad, `shape: "red" is not a shape`}} {
		if !strings.HasPrefix(strings.Replace(c.err.Error(), ": is", " is", 1), c.want) {
			t.Errorf("%q, want %q", c.err, c.want)
		}
	}
}

func ones(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 1
	}
	return out
}

func TestLoadParams(t *testing.T) {
	for _, c := range []struct {
		body string
		want stream.Params
	}{
		{" \n", nil},
		{"{}", stream.Params{}},
		{`{"parameters":{"a":1,"b":2.5,"c":"x","d":true}}`, stream.Params{"a": int64(1), "b": 2.5, "c": "x",
			"d": true}},
		{`{"parameters":{"a":9223372036854775807}}`, stream.Params{"a": int64(9223372036854775807)}},
		{`{"a":9223372036854775808}`, stream.Params{"a": 9223372036854775808.0}},
		{`{"a":1}`, stream.Params{"a": int64(1)}},
	} {
		if got, err := LoadParams([]byte(c.body)); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %#v, %v", c.body, got, err)
		}
	}
	for _, c := range []struct {
		body, field string
	}{
		{`{"parameters":1}`, "parameters"}, {`{"parameters":{"a":[]}}`, "parameters.a"}, {`{"a":null}`, "parameters.a"},
		{`{"parameters":{"a":1},"timeout":5}`, "timeout"}, {`{"config":"{}","parameters":{}}`, "config"},
		{`{"a":1e999}`, "parameters.a"}, {`{} {}`, ""}, {`[]`, ""}, {`{`, ""},
	} {
		_, err := LoadParams([]byte(c.body))
		var coded *stream.Error
		if !errors.As(err, &coded) || coded.Code != stream.InvalidArgument || coded.Field != c.field {
			t.Errorf("%s: %v", c.body, err)
		}
	}
}
