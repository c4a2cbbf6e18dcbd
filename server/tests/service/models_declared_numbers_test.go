package service_test

import (
	"strings"
	"sync"
	"testing"

	"millrace/config"
	"millrace/internal/onnxfile"
	"millrace/internal/servertest"
	"millrace/server"
)

// TestDeclaredNumbers: a scalar of a model's file may be declared with dimensions of 1, and no other dimensions.
func TestDeclaredNumbers(t *testing.T) {
	number := string(flat([]any{}, []any{}))
	declare := func(dims string) string {
		return `input { name: "x" data_type: TYPE_FP32 dims: [ ` + dims +
			` ] } output { name: "y" data_type: TYPE_FP32 dims: [ ` + dims + ` ] }`
	}
	dir := servertest.WriteRepository(t, map[string]string{
		"bare/1/model.onnx": number,
		"one/1/model.onnx":  number, "one/config.pbtxt": declare("1"),
		"two/1/model.onnx": number, "two/config.pbtxt": declare("1, 1"),
		"pair/1/model.onnx": number, "pair/config.pbtxt": declare("2"),
	})
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Repository: config.Repository{Dir: dir, Exit: new(bool)}})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		model, shape string
		status       int
	}{{"bare", "[]", 200}, {"one", "[1]", 200}, {"two", "[1,1]", 200}, {"one", "[2]", 400}, {"two", "[1]", 400},
		{"pair", "[2]", 404}} {
		data := "[7]"
		if c.shape == "[2]" {
			data = "[7,8]"
		}
		status, text := servertest.PostJSON(t, "http://"+s.Addr("http")+"/v2/models/"+c.model+"/infer",
			`{"inputs":[{"name":"x","datatype":"FP32","shape":`+c.shape+`,"data":`+data+`}]}`)
		if status != c.status || status == 200 && !strings.Contains(text, `{"name":"y","datatype":"FP32","shape":`+
			c.shape+`,"data":[7]}`) {
			t.Errorf("%s %s: %d %s", c.model, c.shape, status, text)
		}
	}
	if _, text := servertest.Get(t, s, "/v2/models/two"); strings.Count(text, `"shape":[1,1]`) != 2 {
		t.Errorf("metadata: %s", text)
	}
}

// TestBatchesOfStrings: strings with free dimensions form batches of requests with equal shapes.
func TestBatchesOfStrings(t *testing.T) {
	dims := []any{"N", "A"}
	model := onnxfile.Model{
		Inputs:  []onnxfile.Value{{Name: "x", Type: onnxfile.String, Dims: dims}},
		Outputs: []onnxfile.Value{{Name: "y", Type: onnxfile.String, Dims: dims}},
		Nodes:   []onnxfile.Node{{Op: "Identity", Inputs: []string{"x"}, Outputs: []string{"y"}}},
	}
	dir := servertest.WriteRepository(t, map[string]string{
		"texts/1/model.onnx": string(model.Bytes()),
		"texts/config.pbtxt": `max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 20000 }
			input { name: "x" data_type: TYPE_STRING dims: [ -1 ] } output { name: "y" data_type: TYPE_STRING dims: [ -1 ] }`,
	})
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Repository: config.Repository{Dir: dir, Exit: new(bool)}})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	tensors := []string{`"shape":[1,2],"data":["a","bc"]}`, `"shape":[2,2],"data":["d","e","f",""]}`,
		`"shape":[1,1],"data":["g"]}`, `"shape":[8,1],"data":["1","2","3","4","5","6","7","8"]}`}
	var all sync.WaitGroup
	for range 8 {
		for _, tensor := range tensors {
			all.Go(func() {
				status, text := servertest.PostJSON(t, "http://"+s.Addr("http")+"/v2/models/texts/infer",
					`{"inputs":[{"name":"x","datatype":"BYTES",`+tensor+`]}`)
				if status != 200 || !strings.Contains(text, `{"name":"y","datatype":"BYTES",`+tensor) {
					t.Errorf("%s: %d %s", tensor, status, text)
				}
			})
		}
	}
	all.Wait()
}
