package rest_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"millrace/stream"
)

func floats(v ...float32) []byte { return stream.AppendFloat32(nil, v...) }

// binaryRequest returns JSON followed by raw bytes, and the header with the length of the JSON.
func binaryRequest(header string, data ...[]byte) ([]byte, string) {
	return append([]byte(header), bytes.Join(data, nil)...), fmt.Sprintf("Inference-Header-Content-Length: %d",
		len(header))
}

func TestInferJSON(t *testing.T) {
	r := start(t, nil, "pair", "identity", "text")
	a := r.ask("POST", "/v2/models/pair/infer", []byte(`{"id":"7","inputs":[
		{"name":"a","datatype":"FP32","shape":[2,3],"data":[[1,2,3],[4,5,6]]},
		{"name":"b","datatype":"FP32","shape":[2,1],"data":[0.5,-1]}]}`), isJSON)
	if a.StatusCode != 200 || a.get("id") != "7" || a.get("model_name") != "pair" ||
		fmt.Sprint(a.get("outputs", "0", "data")) != "[6.5 14]" || a.get("outputs", "1", "name") != "rows" {
		t.Error(a)
	}
	if !regexp.MustCompile(`^queue;dur=[\d.]+, prepare;dur=[\d.]+, run;dur=[\d.]+$`).MatchString(
		a.Header.Get("Server-Timing")) {
		t.Errorf("Server-Timing: %q", a.Header.Get("Server-Timing"))
	}
	// One output, the version in the path, no batch axis.
	a = r.ask("POST", "/v2/models/pair/versions/1/infer", []byte(`{"inputs":[
		{"name":"a","datatype":"FP32","shape":[3],"data":[1,2,3]},
		{"name":"b","datatype":"FP32","shape":[1],"data":[4]}],"outputs":[{"name":"sum"}]}`), isJSON)
	if a.StatusCode != 200 || fmt.Sprint(a.get("outputs", "0", "data")) != "[10]" || a.get("outputs", "1") != nil ||
		a.get("id") != nil {
		t.Error(a)
	}
	a = r.ask("POST", "/v2/models/text/infer",
		[]byte(`{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":["héllo"]}]}`), isJSON)
	if a.StatusCode != 200 || fmt.Sprint(a.get("outputs", "0", "data")) != "[6]" {
		t.Error(a)
	}
	a = r.ask("POST", "/v2/models/identity/infer", []byte(`{"parameters":{"threshold":0.5},"inputs":[
		{"name":"x","datatype":"BYTES","shape":[2],"data":["a","bc"]},
		{"name":"y","datatype":"INT64","shape":[0],"data":[]},
		{"name":"z","datatype":"BOOL","shape":[2],"data":[true,false]}]}`), isJSON)
	if a.StatusCode != 200 || fmt.Sprint(a.get("outputs", "0", "data")) != "[a bc]" ||
		fmt.Sprint(a.get("outputs", "2", "data")) != "[true false]" {
		t.Error(a)
	}
	// The form sent by curl -d.
	a = r.ask("POST", "/v2/models/identity/infer",
		[]byte(`{"inputs":[{"name":"x","datatype":"UINT8","shape":[1],"data":[9]}]}`),
		"Content-Type: application/x-www-form-urlencoded")
	if a.StatusCode != 200 || fmt.Sprint(a.get("outputs", "0", "data")) != "[9]" {
		t.Error(a)
	}
	for outputs, want := range map[string]string{"none": "[]",
		"json": "[map[data:[1] datatype:UINT8 name:x shape:[1]]]"} {
		a = r.ask("POST", "/v2/models/identity/infer?outputs="+outputs,
			[]byte(`{"parameters":{"binary_data_output":true},"inputs":[{"name":"x","datatype":"UINT8","shape":[1],`+
				`"data":[1]}]}`), isJSON)
		if a.StatusCode != 200 || fmt.Sprint(a.get("outputs")) != want {
			t.Error(outputs, a)
		}
	}
	r.NoLeases()
}

func TestInferBinary(t *testing.T) {
	r := start(t, nil, "pair", "identity", "text", "picture")
	// Both tensors and one of the outputs in binary form.
	body, header := binaryRequest(`{"inputs":[{"name":"a","datatype":"FP32","shape":[3],`+
		`"parameters":{"binary_data_size":12}},{"name":"b","datatype":"FP32","shape":[1],`+
		`"parameters":{"binary_data_size":4}}],`+
		`"outputs":[{"name":"rows"},{"name":"sum","parameters":{"binary_data":true}}]}`, floats(1, 2, 3), floats(4))
	a := r.ask("POST", "/v2/models/pair/infer", body, header, isBytes)
	if a.StatusCode != 200 || !bytes.Equal(a.data(), floats(10)) || fmt.Sprint(a.get("outputs", "0", "data")) != "[1]" {
		t.Errorf("%v %q", a, a.data())
	}
	if a.Header.Get("Content-Type") != "application/octet-stream" {
		t.Error(a.Header)
	}
	// A raw tensor and a JSON tensor: data in two leases to be merged.
	body, header = binaryRequest(`{"parameters":{"binary_data_output":true},"inputs":[{"name":"a","datatype":"FP32",`+
		`"shape":[3],"parameters":{"binary_data_size":12}},{"name":"b","datatype":"FP32","shape":[1],"data":[5]}]}`,
		floats(1, 2, 3))
	a = r.ask("POST", "/v2/models/pair/infer", body, header)
	if a.StatusCode != 200 || !bytes.Equal(a.data(), floats(11, 1)) {
		t.Errorf("%v %q", a, a.data())
	}
	// A large body with an unusual length.
	large := make([]byte, 1_000_003)
	for i := range large {
		large[i] = byte(i * 7)
	}
	body, header = binaryRequest(fmt.Sprintf(`{"parameters":{"binary_data_output":true},"inputs":[{"name":"x",`+
		`"datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}]}`, len(large), len(large)), large)
	a = r.ask("POST", "/v2/models/identity/infer", body, header)
	if a.StatusCode != 200 || !bytes.Equal(a.data(), large) {
		t.Errorf("%s, %d bytes", a.Status, len(a.data()))
	}
	// The whole body is one tensor.
	raw := "Inference-Header-Content-Length: 0"
	for path, c := range map[string]struct {
		body, want []byte
		header     string
	}{
		"/v2/models/picture/infer": {bytes.Repeat([]byte{1, 2, 3}, 16),
			[]byte{1, 2, 3, 1, 2, 3}, raw},
		"/v2/models/text/infer": {[]byte("hello"),
			binary.LittleEndian.AppendUint64(nil, 5), raw},
		"/v2/models/identity/infer?datatype=FP32&shape=1,-1":             {floats(1, 2), floats(1, 2), raw},
		"/v2/models/identity/infer?datatype=FP32&shape=2":                {floats(1, 2), floats(1, 2), isBytes},
		"/v2/models/identity/infer?codec=tensor&datatype=UINT8&shape=-1": {[]byte("{}"), []byte("{}"), isJSON},
	} {
		a := r.ask("POST", path, c.body, c.header)
		if a.StatusCode != 200 || !bytes.Equal(a.data(), c.want) {
			t.Errorf("%s: %v %q", path, a, a.data())
		}
	}
	a = r.ask("POST", "/v2/models/text/infer", []byte("hello"), isBytes)
	if a.StatusCode != 200 || fmt.Sprint(a.get("outputs", "0", "data")) != "[5]" {
		t.Error(a)
	}
	r.NoLeases()
}

// A body without a length, from a client that does not know the length in advance.
func TestInferChunked(t *testing.T) {
	r := start(t, nil, "identity")
	data := bytes.Repeat([]byte("0123456789"), 30_000)
	pipe := struct{ *bytes.Reader }{bytes.NewReader(data)} // hides the length from net/http
	req, err := http.NewRequest("POST", r.Base+"/v2/models/identity/infer?datatype=UINT8&shape=-1", pipe)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got bytes.Buffer
	if _, err := got.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || !bytes.HasSuffix(got.Bytes(), data) {
		t.Errorf("%s, %d bytes", resp.Status, got.Len())
	}
	r.NoLeases()
}

// red returns a picture of one colour.
func red() image.Image {
	m := image.NewRGBA(image.Rect(0, 0, 40, 20))
	for i := range 40 * 20 {
		m.Set(i%40, i/40, color.RGBA{250, 10, 20, 255})
	}
	return m
}

func pictures(t *testing.T) (asJPEG, asPNG []byte) {
	t.Helper()
	var j, p bytes.Buffer
	if err := jpeg.Encode(&j, red(), nil); err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(&p, red()); err != nil {
		t.Fatal(err)
	}
	return j.Bytes(), p.Bytes()
}

func TestInferPicture(t *testing.T) {
	r := start(t, nil, "picture", "identity")
	asJPEG, asPNG := pictures(t)
	rgb := bytes.Repeat([]byte{250, 10, 20}, 40*20)
	inJSON := func(text string) []byte {
		return fmt.Appendf(nil, `{"inputs":[{"name":"image","datatype":"BYTES","shape":[1],"data":["%s"]}]}`, text)
	}
	head := fmt.Sprintf(`{"inputs":[{"name":"image","datatype":"BYTES","shape":[1,1],`+
		`"parameters":{"binary_data_size":%d}}]}`, 4+len(asJPEG))
	inBinary := slices.Concat([]byte(head), binary.LittleEndian.AppendUint32(nil, uint32(len(asJPEG))), asJPEG)
	for name, c := range map[string]struct {
		path, header string
		body         []byte
	}{
		"jpeg":          {"", "Content-Type: image/jpeg", asJPEG},
		"jpg":           {"", "Content-Type: image/jpg; q=1", asJPEG},
		"png":           {"", "Content-Type: IMAGE/PNG", asPNG},
		"png as jpeg":   {"", "Content-Type: image/jpeg", asPNG},
		"no type":       {"", "X: y", asJPEG},
		"curl":          {"", "Content-Type: application/x-www-form-urlencoded", asPNG},
		"bytes":         {"", isBytes, asJPEG},
		"codec":         {"?codec=jpeg", "X: y", asJPEG},
		"codec auto":    {"?codec=auto", isJSON, asPNG},
		"rgb24":         {"?codec=rgb24&width=40&height=20", "X: y", rgb},
		"raw":           {"", "Inference-Header-Content-Length: 0", asJPEG},
		"BYTES, JSON":   {"", isJSON, inJSON(base64.StdEncoding.EncodeToString(asJPEG))},
		"BYTES, PNG":    {"?roi=0,0,40,20", isJSON, inJSON(base64.StdEncoding.EncodeToString(asPNG))},
		"BYTES, binary": {"", fmt.Sprint("Inference-Header-Content-Length: ", len(head)), inBinary},
		"with deadline": {"?deadline_ms=60000&outputs=json", "Content-Type: image/png", asPNG},
	} {
		a := r.ask("POST", "/v2/models/picture/infer"+c.path, c.body, c.header)
		if a.StatusCode != 200 || a.get("parameters", "width") != 40.0 || a.get("parameters", "height") != 20.0 {
			t.Errorf("%s: %v", name, a)
			continue
		}
		var v [3]float64
		for i := range v {
			v[i], _ = a.get("outputs", "0", "data", fmt.Sprint(i)).(float64)
		}
		if math.Abs(v[0]-250) > 4 || math.Abs(v[1]-10) > 4 || math.Abs(v[2]-20) > 4 {
			t.Errorf("%s: the first pixel is %v", name, v)
		}
	}
	r.NoLeases()
}

// A result that JSON cannot represent is refused with advice how to request the result. Clients that follow the
// advice get the result. Both hold for every form of request.
func TestNoJSON(t *testing.T) {
	r := start(t, nil, "identity")
	file := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x00\x02\x00\x00\x00\x02\x08\x02\x00\x00\x00")
	message := func(more string) []byte {
		return []byte(`{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":` +
			fmt.Sprint(4+len(file)) + `}}]` + more + `}`)
	}
	body := append(binary.LittleEndian.AppendUint32(nil, uint32(len(file))), file...)
	for name, c := range map[string]struct {
		query  string
		head   []byte // nil = the body is the file alone
		output string
	}{
		"file": {"", nil, "payload"}, "file, JSON": {"?outputs=json", nil, "payload"},
		"message": {"", message(""), "x"}, "message, JSON": {"?outputs=json", message(""), "x"},
	} {
		send, header := file, "Content-Type: image/png"
		if c.head != nil {
			send, header = append(c.head, body...), fmt.Sprint("Inference-Header-Content-Length: ", len(c.head))
		}
		a := r.ask("POST", "/v2/models/identity/infer"+c.query, send, header)
		text := a.String()
		for _, want := range []string{"outputs[0].data[0]", "ask for it as binary data: outputs=binary in the query",
			`\"binary_data_output\":true`, "data=OUTPUT in the query"} {
			if a.StatusCode != 400 || !strings.Contains(text, want) {
				t.Errorf("%s: %s lacks %q", name, text, want)
			}
		}
		if c.query != "" {
			continue
		}
		if a := r.ask("POST", "/v2/models/identity/infer?outputs=binary", send, header); a.StatusCode != 200 ||
			!bytes.Equal(a.data(), body) {
			t.Errorf("%s, binary: %v", name, a)
		}
		output := fmt.Sprint(r.ask("POST", "/v2/models/identity/infer?outputs=binary", send, header).get("outputs",
			"0", "name"))
		a = r.ask("POST", "/v2/models/identity/infer?data="+output, send, header)
		if a.StatusCode != 200 || !bytes.Equal(a.body, file) || a.Header.Get("Content-Type") != "image/png" ||
			a.Header.Get("X-Content-Type-Options") != "nosniff" ||
			a.Header.Get("Inference-Header-Content-Length") != "" {
			t.Errorf("%s, data: %s %v %q", name, a.Status, a.Header, a.body)
		}
		for query, want := range map[string]string{"data=no": `\"no\" is not an output of the result, which has ` +
			output, "data=" + output + "&outputs=json": "is sent with outputs=json",
			"data=": "is not the name of an output"} {
			if a := r.ask("POST", "/v2/models/identity/infer?"+query, send, header); a.StatusCode != 400 ||
				!strings.Contains(a.String(), want) {
				t.Errorf("%s, %s: %v, want %s", name, query, a, want)
			}
		}
	}
	if a := r.ask("POST", "/v2/models/identity/infer?data=x",
		[]byte(`{"inputs":[{"name":"x","datatype":"BYTES","shape":[2],"data":["a","b"]}]}`)); a.StatusCode != 400 ||
		!strings.Contains(a.String(), "only the data of one element of BYTES") {
		t.Error(a)
	}
	if a := r.ask("POST", "/v2/models/identity/infer?data=x",
		[]byte(`{"inputs":[{"name":"x","datatype":"UINT8","shape":[2],"data":[1,2]}]}`)); a.StatusCode != 200 ||
		string(a.body) != "\x01\x02" || a.Header.Get("Content-Type") != "application/octet-stream" {
		t.Error(a)
	}
	if a := r.ask("POST", "/v2/models/identity/infer_stream?data=x",
		[]byte(`{"inputs":[{"name":"x","datatype":"UINT8","shape":[2],"data":[1,2]}]}`)); a.StatusCode != 400 ||
		!strings.Contains(a.String(), "events carry JSON") {
		t.Error(a)
	}
	r.NoLeases()
}
