package rest_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"runtime"
	"strings"
	"testing"
	"time"

	"millrace/server"
)

// hugePNG is the header of a picture of 20,000 x 20,000 pixels.
func hugePNG() []byte {
	chunk := binary.BigEndian.AppendUint32([]byte("IHDR"), 20_000)
	chunk = append(binary.BigEndian.AppendUint32(chunk, 20_000), 8, 2, 0, 0, 0)
	b := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), chunk...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(chunk))
}

// refusal is a request that must fail, with the expected error.
type refusal struct {
	name, method, path string
	body               []byte
	headers            []string
	status             int
	code               string
	says               string // a part of the message
}

// refusals are the refusals of HTTP and JSON. TestConformance of package server has the refusals shared with gRPC.
func refusals(t *testing.T) []refusal {
	asJPEG, asPNG := pictures(t)
	message := func(inputs string) []byte { return []byte(`{"inputs":[` + inputs + `]}`) }
	const a, b = `{"name":"a","datatype":"FP32","shape":[3],"data":[1,2,3]}`,
		`{"name":"b","datatype":"FP32","shape":[1],"data":[1]}`
	short, shortHeader := binaryRequest(`{"inputs":[{"name":"a","datatype":"FP32","shape":[3],`+
		`"parameters":{"binary_data_size":12}},`+b+`]}`, floats(1, 2))
	long, longHeader := binaryRequest(`{"inputs":[{"name":"a","datatype":"FP32","shape":[3],`+
		`"parameters":{"binary_data_size":12}},`+b+`]}`, floats(1, 2, 3, 4))
	const pair, pict, text, any = "/v2/models/pair/infer", "/v2/models/picture/infer", "/v2/models/text/infer",
		"/v2/models/identity/infer"
	const raw = "Inference-Header-Content-Length: 0"
	deep := strings.Repeat("[", 10_000)
	var out []refusal
	add := func(name, path string, body []byte, status int, code, says string, headers ...string) {
		out = append(out, refusal{name, "POST", path, body, headers, status, code, says})
	}
	bad := func(name, path string, body []byte, says string, headers ...string) {
		add(name, path, body, 400, "invalid_argument", says, headers...)
	}

	bad("empty body", pair, nil, "empty", isJSON)
	bad("empty body, no type", pair, []byte{}, "empty")
	bad("not JSON", pair, []byte("hello"), "", isJSON)
	bad("half JSON", pair, message(a)[:30], "", isJSON)
	bad("JSON and more", pair, append(message(a+","+b), "x"...), "", isJSON)
	bad("null", pair, []byte("null"), "", isJSON)
	bad("array", pair, []byte("[]"), "", isJSON)
	bad("zeros", pair, make([]byte, 1000), "", isJSON)
	bad("10,000 deep", pair, []byte(deep), "", isJSON)
	bad("10,000 deep data", pair, message(`{"name":"a","datatype":"FP32","shape":[3],"data":`+deep), "", isJSON)
	bad("10,000 deep unknown", pair, []byte(`{"x":`+deep), "", isJSON)
	bad("binary too short", pair, short, "", shortHeader)
	bad("binary too long", pair, long, "", longHeader)
	bad("header length too long", pair, message(a+","+b), "", "Inference-Header-Content-Length: 100000")
	bad("header length negative", pair, message(a+","+b), "Inference-Header-Content-Length",
		"Inference-Header-Content-Length: -1")
	bad("header length garbage", pair, message(a+","+b), "Inference-Header-Content-Length",
		"Inference-Header-Content-Length: 1e3")
	bad("header length too short", pair, message(a+","+b), "", "Inference-Header-Content-Length: 20")
	bad("raw for two inputs", pair, floats(1, 2, 3), "2 inputs", raw)
	bad("raw for any input", any, floats(1), "datatype", raw)
	bad("raw of a wrong length", pict, make([]byte, 25), "bytes", raw)
	bad("raw, wrong shape", any+"?datatype=FP32&shape=3", floats(1), "bytes", raw)
	bad("raw, overflowing shape", any+"?datatype=FP32&shape=4294967296,4294967296,-1", floats(1), "", raw)

	add("not an image", pict, []byte("hello"), 400, "unsupported", "send one of those", "Content-Type: image/jpeg")
	add("not an image, codec", pict+"?codec=auto", []byte("hello"), 400, "unsupported", "picture")
	add("not an image, said to be", pict+"?codec=jpeg", []byte("hello"), 400, "unsupported", "JPEG")
	bad("truncated JPEG", pict, asJPEG[:len(asJPEG)/2], "", "Content-Type: image/jpeg")
	bad("JPEG header", pict, asJPEG[:20], "", "Content-Type: image/jpeg")
	bad("truncated PNG", pict, asPNG[:len(asPNG)/2], "", "Content-Type: image/png")
	add("huge PNG", pict, hugePNG(), 413, "too_large", "", "Content-Type: image/png")
	element := func(name, text string) []byte {
		return message(fmt.Sprintf(`{"name":"%s","datatype":"BYTES","shape":[1],"data":["%s"]}`, name, text))
	}
	pngText := base64.StdEncoding.EncodeToString(asPNG)
	bad("two pictures as BYTES", pict, message(fmt.Sprintf(`{"name":"image","datatype":"BYTES","shape":[2],`+
		`"data":["%s","%[1]s"]}`, pngText)), "inputs[0].shape: has 2 elements: send one picture", isJSON)
	bad("no picture as BYTES", pict, message(`{"name":"image","datatype":"BYTES","shape":[0],"data":[]}`),
		"inputs[0].shape: has 0 elements", isJSON)
	bad("picture as BYTES of another name", pict, element("picture", pngText),
		"inputs[0].name: unexpected inference input 'picture' for model 'picture'", isJSON)
	add("text as a picture", pict, element("image", "hello"), 400, "unsupported",
		"inputs[0].data: model picture takes one picture, as it is or in base64", isJSON)
	add("empty text as a picture", pict, element("image", ""), 400, "unsupported",
		"inputs[0].data: model picture takes one picture", isJSON)
	add("video as BYTES", pict, element("image",
		base64.StdEncoding.EncodeToString([]byte("\x00\x00\x00\x20ftypisom\x00\x00\x02\x00"))), 400, "unsupported",
		"a video", isJSON)
	bad("truncated picture as BYTES", pict, element("image", base64.StdEncoding.EncodeToString(asPNG[:len(asPNG)/2])),
		"inputs[0].data", isJSON)
	bad("region of a tensor", pict+"?roi=0,0,1,1",
		message(`{"name":"image","datatype":"UINT8","shape":[1,2,4,3],"data":[`+strings.Repeat("0,", 23)+`0]}`), "roi",
		isJSON)
	add("picture for tensors", pair, asPNG, 400, "unsupported", "tensors", "Content-Type: image/png")
	bad("raw picture without a size", pict+"?codec=rgb24", make([]byte, 12), "width")
	bad("raw picture of another size", pict+"?codec=rgb24&width=3&height=2", make([]byte, 17), "want 18")
	bad("nv12 of another size", pict+"?codec=nv12&width=4&height=2", make([]byte, 13), "want 12")
	add("video for pictures", pict+"?codec=h264", []byte("hello"), 400, "unsupported", "h264")
	add("opaque for tensors", pair+"?codec=opaque", []byte("hello"), 400, "unsupported", "tensors")
	add("unknown type", pair, []byte("<x/>"), 415, "unsupported", "application/xml", "Content-Type: application/xml")

	bad("unknown codec", pict+"?codec=gif", asPNG, "gif")
	bad("no width", pict+"?width=0", asPNG, "width")
	bad("wide", pict+"?width=65536", asPNG, "width")
	bad("height", pict+"?height=x", asPNG, "height")
	bad("option datatype", pict+"?datatype=FLOAT", asPNG, "datatype")
	bad("option shape", pict+"?shape=1,x", asPNG, "shape")
	bad("option shape below", pict+"?shape=-2", asPNG, "shape")
	bad("option outputs", pict+"?outputs=xml", asPNG, "outputs")
	for _, d := range []string{"0", "-1", "x", "NaN", "Inf", "1e300", "3600001", ""} {
		bad("deadline "+d, pict+"?deadline_ms="+d, asPNG, "deadline_ms")
	}

	add("unknown coding", text, []byte("x"), 415, "unsupported", "gzip, deflate or zstd", isBytes,
		"Content-Encoding: br")
	add("two codings", text, []byte("x"), 415, "unsupported", "gzip, deflate or zstd", isBytes,
		"Content-Encoding: gzip, gzip")
	for _, coding := range []string{"gzip", "deflate", "zstd"} {
		bad("not "+coding, text, []byte("hello, world"), "Content-Encoding: is "+coding, isBytes,
			"Content-Encoding: "+coding)
		part := packed(coding, bytes.Repeat([]byte("x"), 5000))
		bad("a part of "+coding, text, part[:len(part)-6], "Content-Encoding: is "+coding, isBytes,
			"Content-Encoding: "+coding)
		add("a bomb in "+coding, text, packed(coding, make([]byte, 10<<20)), 413, "too_large", "max_body", isBytes,
			"Content-Encoding: "+coding)
	}
	add("too large", text, make([]byte, 200_001), 413, "too_large", "max_body", isBytes)
	add("foreign Origin", pair, message(a+","+b), 403, "permission_denied", "origins", isJSON,
		"Origin: http://evil.example")
	add("foreign Host", pair, message(a+","+b), 403, "permission_denied", "hosts", isJSON, "Host: evil.example")
	add("unknown route", "/v2/models/pair/explain", message(a), 404, "not_found", "explain", isJSON)
	add("unload of another version", "/v2/repository/models/pair/versions/9/unload", nil, 404, "not_found", "")
	add("load of another version", "/v2/repository/models/pair/versions/9/load", nil, 404, "not_found", "version")
	bad("load with an unknown parameter outside", "/v2/repository/models/pair/load", []byte(`{"batch_sise":2}`),
		"parameters.batch_sise")
	bad("load with an object", "/v2/repository/models/pair/load", []byte(`{"parameters":{"batch_size":{}}}`),
		"parameters.batch_size")
	bad("load with an array", "/v2/workers/pair/load", []byte(`{"parameters":[]}`), "parameters")
	add("unload with too much", "/v2/workers/pair/unload", make([]byte, 70_000), 413, "too_large", "max_body")
	bad("load of another repository", "/v2/repository/other/models/pair/load", nil, "repository_name: ")
	bad("load with garbage", "/v2/workers/pair/load", []byte(`{"a"`), "JSON")
	bad("load, 10,000 deep", "/v2/workers/pair/load", []byte(`{"a":`+deep), "JSON")
	bad("load and more", "/v2/workers/pair/load", []byte(`{} {}`), "more bytes after")
	add("load with too much", "/v2/workers/pair/load", make([]byte, 200_001), 413, "too_large", "max_body")
	bad("index with garbage", "/v2/repository/index", []byte(`[`), "JSON")
	for _, c := range [][2]string{{"GET", pair}, {"PUT", pair}, {"DELETE", "/v2/models/pair"}, {"POST", "/v2"},
		{"PATCH", "/v2/health/live"}, {"GET", "/v2/workers/pair/load"}} {
		out = append(out, refusal{c[0] + " " + c[1], c[0], c[1], nil, nil, 405, "unsupported", c[0]})
	}
	return out
}

func (r *running) refused(c *refusal) {
	r.T.Helper()
	a := r.ask(c.method, c.path, c.body, c.headers...)
	var e struct{ Error, Code string }
	if err := json.Unmarshal(a.body, &e); err != nil || e.Error == "" {
		r.T.Errorf("%s: %v is no error reply", c.name, a)
		return
	}
	if a.StatusCode != c.status || e.Code != c.code || !strings.Contains(e.Error, c.says) {
		r.T.Errorf("%s: %v, want %d %s with %q", c.name, a, c.status, c.code, c.says)
	}
}

func (r *running) works() {
	r.T.Helper()
	a := r.ask("POST", "/v2/models/pair/infer", []byte(`{"inputs":[{"name":"a","datatype":"FP32","shape":[3],`+
		`"data":[1,2,3]},{"name":"b","datatype":"FP32","shape":[1],"data":[4]}]}`), isJSON)
	if a.StatusCode != 200 || fmt.Sprint(a.get("outputs", "0", "data")) != "[10]" {
		r.T.Errorf("a good request after bad ones: %v", a)
	}
}

func TestRefusals(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Limits.MaxBody = 200_000 }, "pair", "picture", "text", "identity")
	for _, c := range refusals(t) {
		r.refused(&c)
	}
	r.works()
	r.NoLeases()
}

// A thousand failures in a row leave nothing behind.
func TestManyFailures(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Limits.MaxBody = 200_000 }, "pair", "picture", "text", "identity")
	all := refusals(t)
	for i := range all {
		r.refused(&all[i]) // initialises everything made only once
	}
	r.works()
	r.NoLeases()
	before := runtime.NumGoroutine()
	for i := range 1000 {
		r.refused(&all[i%len(all)])
	}
	r.works()
	r.NoLeases()
	limit := time.Now().Add(20 * time.Second)
	for runtime.NumGoroutine() > before+4 { // short-lived goroutines of connections
		if time.Now().After(limit) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(time.Millisecond)
	}
	var stats bytes.Buffer
	for _, g := range r.Models().Snapshot() {
		if g.Waiting != 0 || g.Busy != 0 || g.BuffersFree != g.Buffers {
			fmt.Fprintf(&stats, "%s: %+v\n", g.Model.Name, g)
		}
	}
	if stats.Len() > 0 {
		t.Error(stats.String())
	}
}

// Exhausted memory is an error of the request, not a fault, and ends.
func TestNoMemory(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Memory.Budget = 1 << 20 }, "identity")
	r.refused(&refusal{"too much for the budget", "POST", "/v2/models/identity/infer", make([]byte, 2<<20),
		[]string{isBytes}, 503, "overloaded", "memory.budget"})
	numbers := `{"inputs":[{"name":"x","datatype":"FP64","shape":[100000],"data":[` + strings.Repeat("1,", 99_999) +
		`1]}]}`
	r.refused(&refusal{"decoded too much for the budget", "POST", "/v2/models/identity/infer", []byte(numbers),
		[]string{isJSON}, 503, "overloaded", "memory.budget"})
	a := r.ask("POST", "/v2/models/identity/infer", make([]byte, 1000), isBytes)
	if a.StatusCode != 200 {
		t.Error(a)
	}
	r.NoLeases()
}
