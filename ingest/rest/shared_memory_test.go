package rest_test

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/ingest/rest"
	"millrace/ingest/shm"
	"millrace/internal/httpd"
	"millrace/server"
)

// sharedFile makes a POSIX shared memory, removed at the end of the test, and returns its key.
func sharedFile(t *testing.T, content []byte) (key, path string) {
	t.Helper()
	f, err := os.CreateTemp(shm.Folder, "millrace-test-")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	t.Cleanup(func() { _ = os.Remove(f.Name()) })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return "/" + filepath.Base(f.Name()), f.Name()
}

const regions = "/v2/systemsharedmemory"

func (r *running) register(name, key string, offset, size int) *answer {
	r.T.Helper()
	return r.ask("POST", regions+"/region/"+name+"/register", fmt.Appendf(nil, `{"key":%q,"offset":%d,"byte_size":%d}`,
		key, offset, size), isJSON)
}

// sharedPair is a request with its inputs and one output in shared memory.
func sharedPair(aSize, bOffset, sumSize int) []byte {
	return fmt.Appendf(nil, `{"id":"s","inputs":[
		{"name":"a","datatype":"FP32","shape":[1,3],"parameters":{"shared_memory_region":"in","shared_memory_byte_size":%d}},
		{"name":"b","datatype":"FP32","shape":[1,1],"parameters":{"shared_memory_region":"in","shared_memory_offset":%d,"shared_memory_byte_size":4}}],
		"outputs":[{"name":"rows"},{"name":"sum","parameters":{"shared_memory_region":"out","shared_memory_offset":8,"shared_memory_byte_size":%d}}]}`, aSize, bOffset, sumSize)
}

func TestTensorsInSharedMemory(t *testing.T) {
	r := start(t, nil, "pair")
	in, inPath := sharedFile(t, append([]byte("skip"), floats(1, 2, 3, 4)...))
	out, outPath := sharedFile(t, make([]byte, 16))
	if a := r.register("in", in, 4, 16); a.StatusCode != 200 {
		t.Fatal(a)
	}
	if a := r.register("out", out, 0, 16); a.StatusCode != 200 {
		t.Fatal(a)
	}
	if a := r.register("out", out, 0, 16); a.StatusCode != 409 || a.get("code") != "conflict" {
		t.Error(a)
	}
	a := r.ask("GET", regions+"/region/in/status", nil)
	if want := fmt.Sprintf(`[{"name":"in","key":%q,"offset":4,"byte_size":16}]`, in); a.StatusCode != 200 ||
		string(a.body) != want {
		t.Errorf("%v, want %s", a, want)
	}
	if a := r.ask("GET", regions+"/status", nil); strings.Count(string(a.body), `"name"`) != 2 {
		t.Error(a)
	}
	a = r.ask("POST", "/v2/models/pair/infer", sharedPair(12, 12, 8), isJSON)
	if a.StatusCode != 200 || fmt.Sprint(a.get("outputs", "0", "data")) != "[1]" ||
		a.get("outputs", "1", "data") != nil ||
		// clients would take the parameters for parameters of binary data
		a.get("outputs", "1", "parameters") != nil {
		t.Error(a)
	}
	if got, _ := os.ReadFile(outPath); !bytes.Equal(got[8:12], floats(10)) || !bytes.Equal(got[:8], make([]byte, 8)) {
		t.Errorf("the output's memory: %v", got)
	}
	for name, c := range map[string]struct {
		body  []byte
		field string
	}{
		"input of another size": {sharedPair(8, 12, 4), "inputs[0].parameters.shared_memory_byte_size"},
		"input outside":         {sharedPair(12, 13, 4), "inputs[1].parameters.shared_memory_byte_size"},
		"offset outside":        {sharedPair(12, 17, 4), "inputs[1].parameters.shared_memory_offset"},
		"offset negative":       {sharedPair(12, -1, 4), "inputs[1].parameters.shared_memory_offset"},
		"offset of 64 bits": {bytes.Replace(sharedPair(12, 12, 4), []byte(`"shared_memory_offset":12`),
			[]byte(`"shared_memory_offset":18446744073709551584`), 1),
			"inputs[1].parameters.shared_memory_offset: Invalid offset for shared memory region"},
		"size of 64 bits": {bytes.Replace(sharedPair(12, 12, 4), []byte(`"shared_memory_byte_size":12`),
			[]byte(`"shared_memory_offset":8,"shared_memory_byte_size":18446744073709551612`), 1),
			"inputs[0].parameters.shared_memory_byte_size: "},
		"output's part small": {sharedPair(12, 12, 3), "outputs[1].parameters.shared_memory_byte_size"},
		"output outside":      {sharedPair(12, 12, 9), "outputs[1].parameters.shared_memory_byte_size"},
		"another region": {bytes.Replace(sharedPair(12, 12, 4), []byte(`"in"`), []byte(`"gone"`), 1),
			"inputs[0].parameters.shared_memory_region"},
		"region of another kind": {bytes.Replace(sharedPair(12, 12, 4), []byte(`"in"`), []byte(`7`), 1),
			"inputs[0].parameters.shared_memory_region"},
		"no region": {bytes.Replace(sharedPair(12, 12, 4), []byte(`"shared_memory_region":"out",`), nil,
			1), "outputs[1].parameters.shared_memory_region"},
		"no size": {bytes.Replace(sharedPair(12, 12, 4), []byte(`,"shared_memory_byte_size":12`), nil,
			1), "inputs[0].parameters.shared_memory_byte_size"},
		"data too": {bytes.Replace(sharedPair(12, 12, 4), []byte(`"shape":[1,3],`),
			[]byte(`"shape":[1,3],"data":[1,2,3],`), 1), "inputs[0].parameters.shared_memory_region"},
	} {
		a := r.ask("POST", "/v2/models/pair/infer", c.body, isJSON)
		if msg, _ := a.get("error").(string); a.StatusCode/100 != 4 || !strings.Contains(msg, c.field) {
			t.Errorf("%s: %v, want an error of %s", name, a, c.field)
		}
	}
	if err := os.Truncate(inPath, 8); err != nil {
		t.Fatal(err)
	}
	if a := r.ask("POST", "/v2/models/pair/infer", sharedPair(12, 12, 4), isJSON); a.StatusCode != 400 ||
		!strings.Contains(a.String(), "made shorter") {
		t.Error(a)
	}
	if a := r.ask("POST", regions+"/region/in/unregister", nil); a.StatusCode != 200 {
		t.Error(a)
	}
	if a := r.ask("GET", regions+"/region/in/status", nil); a.StatusCode != 404 {
		t.Error(a)
	}
	if a := r.ask("POST", regions+"/unregister", nil); a.StatusCode != 200 {
		t.Error(a)
	}
	if a := r.ask("GET", regions+"/status", nil); string(a.body) != "[]" {
		t.Error(a)
	}
	r.NoLeases()
}

// BYTES in shared memory are checked like BYTES in a message.
func TestTextInSharedMemory(t *testing.T) {
	r := start(t, nil, "identity")
	key, path := sharedFile(t, []byte("\x02\x00\x00\x00hi\x03\x00\x00\x00you"))
	if a := r.register("in", key, 0, 13); a.StatusCode != 200 {
		t.Fatal(a)
	}
	body := []byte(`{"inputs":[{"name":"x","datatype":"BYTES","shape":[2],"parameters":{"shared_memory_region":"in",` +
		`"shared_memory_byte_size":13}}]}`)
	if a := r.ask("POST", "/v2/models/identity/infer", body, isJSON); a.StatusCode != 200 ||
		fmt.Sprint(a.get("outputs", "0", "data")) != "[hi you]" {
		t.Error(a)
	}
	if err := os.WriteFile(path, []byte("\xff\x00\x00\x00hi\x03\x00\x00\x00you"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a := r.ask("POST", "/v2/models/identity/infer", body, isJSON); a.StatusCode != 400 ||
		!strings.Contains(a.String(), "inputs[0].data") {
		t.Error(a)
	}
	r.NoLeases()
}

func TestSharedMemoryRefuses(t *testing.T) {
	r := start(t, nil, "pair")
	key, _ := sharedFile(t, make([]byte, 16))
	for body, field := range map[string]string{
		`{"offset":0,"byte_size":16}`: "key", fmt.Sprintf(`{"key":%q}`, key): "byte_size",
		`{"key":"x","byte_size":-1}`: "", `{"key":"x","byte_size":1,"size":2}`: "size",
		`[`: "", fmt.Sprintf(`{"key":%q,"byte_size":17}`, key): "byte_size",
	} {
		if a := r.ask("POST", regions+"/region/x/register", []byte(body), isJSON); a.StatusCode != 400 ||
			!strings.Contains(a.String(), field) {
			t.Errorf("%s: %v", body, a)
		}
	}
	if a := r.ask("POST", regions+"/region/x/register", []byte(`{"key":"`+key+`","byte_size":16}`), isJSON,
		"Origin: https://elsewhere.example"); a.StatusCode != 403 {
		t.Error("a page of another site:", a)
	}
	const cuda = "/v2/cudasharedmemory"
	if a := r.ask("GET", cuda+"/status", nil); a.StatusCode != 200 || string(a.body) != "[]" {
		t.Error(a)
	}
	if a := r.ask("GET", cuda+"/region/x/status", nil); a.StatusCode != 404 {
		t.Error(a)
	}
	if a := r.ask("POST", cuda+"/unregister", nil); a.StatusCode != 200 {
		t.Error(a)
	}
	if a := r.ask("POST", cuda+"/region/x/register", []byte(`{"raw_handle":{"b64":""},"device_id":0,"byte_size":1}`),
		isJSON); a.StatusCode != 400 || !strings.Contains(a.String(), "CUDA") {
		t.Error(a)
	}
}

func TestSharedMemoryTurnedOff(t *testing.T) {
	off := false
	r := start(t, func(c *server.Config) { c.SharedMemory = &off }, "pair")
	for path, body := range map[string][]byte{regions + "/region/x/register": []byte(`{"key":"x","byte_size":1}`),
		"/v2/models/pair/infer": sharedPair(12, 12, 4)} {
		if a := r.ask("POST", path, body, isJSON); a.StatusCode != 400 || a.get("code") != "unsupported" ||
			!strings.Contains(a.String(), "shared_memory") {
			t.Error(path, a)
		}
	}
	if a := r.ask("GET", regions+"/status", nil); a.StatusCode != 200 || string(a.body) != "[]" {
		t.Error(a)
	}
	if a := r.ask("GET", "/v2", nil); strings.Contains(string(a.body), "shared_memory") {
		t.Error(a)
	}
}

// A client with another address than loopback is refused.
func TestSharedMemoryOfOtherMachines(t *testing.T) {
	h, err := httpd.New(httpd.Config{Addr: "127.0.0.1:0", Hosts: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	rest.New(h, rest.Options{SharedMemory: shm.New(t.TempDir(), 1)})
	for method, path := range map[string]string{"GET": regions + "/status", "POST": regions + "/region/x/register"} {
		req := httptest.NewRequest(method, path, strings.NewReader(`{"key":"x","byte_size":1}`))
		resp, err := h.App.Test(req, -1) // from the address 0.0.0.0
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != 403 {
			t.Error(method, path, resp.Status)
		}
	}
}
