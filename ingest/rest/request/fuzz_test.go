package request

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"millrace/ingest/frames"
	"millrace/ingest/shm"
	"millrace/internal/oip"
	"millrace/stream"
)

func FuzzLoadParams(f *testing.F) {
	for _, s := range []string{"", "{}", `{"parameters":{"a":1,"b":2.5,"c":"x","d":true}}`, `{"a":1e999}`,
		`{"parameters":null}`, `[]`, `{"a":{}}`, `{"a":9223372036854775808}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		params, err := LoadParams(body)
		if err != nil {
			if c := stream.CodeOf(err); c != stream.InvalidArgument {
				t.Errorf("%v has the code %s", err, c)
			}
			return
		}
		for k, v := range params {
			switch v := v.(type) {
			case string, bool, int64:
			case float64:
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Errorf("%s is %v", k, v)
				}
			default:
				t.Errorf("%s is a %T", k, v)
			}
		}
	})
}

func FuzzOptions(f *testing.F) {
	for _, s := range [][2]string{{"codec", "jpeg"}, {"width", "640"}, {"shape", "1,-1, 3"}, {"shape", ""},
		{"deadline_ms", "0.5"}, {"outputs", "none"}, {"datatype", "FP32"}, {"x", "y"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		var o Options
		if err := o.Set(key, value); err != nil {
			if c := stream.CodeOf(err); c != stream.InvalidArgument {
				t.Errorf("%v has the code %s", err, c)
			}
			return
		}
		if o.Deadline < 0 || o.Deadline > maxDeadline || o.Width < 0 || o.Width > 65535 || o.Height < 0 ||
			o.Height > 65535 || len(o.Shape) > 64 {
			t.Errorf("%s=%s gave %+v", key, value, o)
		}
	})
}

// An accepted region lies in a file of the registry's folder.
func FuzzRegion(f *testing.F) {
	for _, s := range []string{
		"", "{}", `{"key":"/here","byte_size":8}`, `{"key":"here","offset":8,"byte_size":56} {}`,
		`{"key":"/../outside","byte_size":1}`, `{"key":"/a/b","byte_size":1}`, `{"key":"\u0000","byte_size":1}`,
		`{"key":"/here","offset":18446744073709551615,"byte_size":18446744073709551615}`,
		`{"key":"/here","byte_size":-1}`, `{"key":null,"byte_size":1e3}`, `{"key":"/here","byte_size":65,"x":1}`,
	} {
		f.Add("r", []byte(s))
	}
	dir := f.TempDir()
	folder := filepath.Join(dir, "folder")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(filepath.Join(folder, "here"), make([]byte, 64),
		0o600), os.WriteFile(filepath.Join(dir, "outside"), make([]byte, 64), 0o600)); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string, body []byte) {
		r, err := ParseRegion(body)
		if err == nil {
			if !json.Valid(body) {
				t.Errorf("%q was accepted", body)
			}
			memory := shm.New(folder, 1)
			if err = memory.Register(shm.Client{}, name, r.Key, r.Offset, r.ByteSize); err == nil {
				if r.Key != "here" && r.Key != "/here" || r.ByteSize == 0 || r.Offset > 64 || r.ByteSize > 64-r.Offset {
					t.Errorf("%+v was registered", r)
				}
				memory.UnregisterAll(shm.Owner{})
			}
		}
		if c := stream.CodeOf(err); err != nil && c != stream.InvalidArgument && c != stream.NotFound {
			t.Errorf("%v has the code %s", err, c)
		}
	})
}

// Accepted changes of settings have values of the settings' kinds.
func FuzzSettings(f *testing.F) {
	for _, s := range []string{
		"", "{}", "null", `{"level":"debug"}`, `{"log_verbose_level":1e9}`,
		`{"log_verbose_level":9223372036854775808}`, `{"log_info":null} {}`, `[]`,
		`{"trace_rate":["1"],"trace_level":["OFF"]}`, `{"trace_rate":null}`, `{"trace_rate":4294967296}`,
		`{"trace_file":[]}`, `{"trace_rate":[[]]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		log, err := LogChange(body)
		if c := stream.CodeOf(err); err != nil && c != stream.InvalidArgument {
			t.Errorf("%v has the code %s", err, c)
		}
		if err == nil && !json.Valid(body) {
			t.Errorf("%q was accepted", body)
		}
		for name, v := range log {
			if _, ok := v.(json.Number); ok {
				t.Errorf("%s is %v, a number as text", name, v)
			}
		}
		_, err = TraceChange(body)
		if c := stream.CodeOf(err); err != nil && c != stream.InvalidArgument {
			t.Errorf("%v has the code %s", err, c)
		}
	})
}

// The decoder accepts the output of Generate, or refuses the output with a client's error.
func FuzzGenerate(f *testing.F) {
	for _, s := range []string{
		"", "{}", `{"text":"hello","n":[1,2]}`, `{"text":"a","text":"b"}`, `{"n":[[1]]}`, `{"n":1e999}`,
		`{"id":"7","parameters":{"a":1},"x":true}`, `{"id":7,"text":null}`, `{"text":"\ud800"} {}`, `{"parameters":[]}`,
	} {
		f.Add([]byte(s))
	}
	m := &stream.Model{Name: "m", MaxBatch: 1,
		Inputs: []stream.TensorSpec{{Name: "text", Datatype: stream.Bytes, Shape: []int{-1}},
			{Name: "n", Datatype: stream.Int32, Shape: []int{-1}}}}
	var r oip.InferRequest
	f.Fuzz(func(t *testing.T, body []byte) {
		text, _, err := frames.Generate(body, m)
		if err == nil {
			err = oip.DecodeRequest(&r, text, -1, func(n int) []byte { return make([]byte, n) }, oip.Limits{})
		}
		if c := stream.CodeOf(err); err != nil && c != stream.InvalidArgument && c != stream.TooLarge &&
			c != stream.Unsupported {
			t.Errorf("%v has the code %s", err, c)
		}
	})
}
