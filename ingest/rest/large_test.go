package rest_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"millrace/server"
)

// A JSON answer of several pieces arrives whole with its length, also followed by binary tensors, and compressed. The
// budget contains only a piece of the answer. An unsendable result is an error before the first byte.
func TestLargeJSON(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Memory.Budget = 8 << 20 }, "identity")
	const n = 200_000
	pixels := bytes.Repeat([]byte{7, 255}, n/2)
	numbers := strings.TrimSuffix(strings.Repeat("7,255,", n/2), ",")
	both := fmt.Sprintf(`{"inputs":[{"name":"a","datatype":"UINT8","shape":[%d],`+
		`"parameters":{"binary_data_size":%[1]d}},{"name":"b","datatype":"UINT8","shape":[3],`+
		`"parameters":{"binary_data_size":3}}],`+
		`"outputs":[{"name":"a"},{"name":"b","parameters":{"binary_data":true}}]}`, n)
	post := func(path, jsonLen, coding string, body []byte) (*http.Response, []byte) {
		q, err := http.NewRequest(http.MethodPost, r.Base+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/octet-stream")
		if jsonLen != "" {
			q.Header.Set("Inference-Header-Content-Length", jsonLen)
		}
		q.Header.Set("Accept-Encoding", coding)
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a, text
	}
	check := func(name string, text []byte) {
		var m struct {
			Outputs []struct{ Data json.RawMessage }
		}
		if err := json.Unmarshal(text, &m); err != nil || len(m.Outputs) == 0 || string(m.Outputs[0].Data) != "["+
			numbers+"]" {
			t.Errorf("%s: %v, %.200s", name, err, text)
		}
	}
	one := fmt.Sprintf("/v2/models/identity/infer?datatype=UINT8&shape=%d&outputs=json", n)
	a, text := post(one, "0", "identity", pixels)
	if a.ContentLength != int64(len(text)) {
		t.Errorf("%d of %d bytes", len(text), a.ContentLength)
	}
	check("plain", text)
	a, text = post(one, "0", "gzip", pixels)
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil || a.Header.Get("Content-Encoding") != "gzip" {
		t.Fatal(err, a.Header)
	}
	if text, err = io.ReadAll(z); err != nil {
		t.Fatal(err)
	}
	check("gzip", text)
	a, text = post("/v2/models/identity/infer", fmt.Sprint(len(both)), "identity",
		append(append([]byte(both), pixels...), 1, 2, 3))
	var jsonLen int
	if _, err := fmt.Sscan(a.Header.Get("Inference-Header-Content-Length"), &jsonLen); err != nil ||
		a.ContentLength != int64(len(text)) || jsonLen+3 != len(text) {
		t.Fatalf("%v, %d of %d bytes, %.300s", a.Header, len(text), a.ContentLength, text)
	}
	check("both", text[:jsonLen])
	if string(text[jsonLen:]) != "\x01\x02\x03" {
		t.Errorf("the binary tensor is %q", text[jsonLen:])
	}
	// Texts of control characters are refused unless binary data or the data alone are asked for.
	zeros := make([]byte, 70_000)
	if a, text = post("/v2/models/identity/infer?outputs=json", "", "identity",
		zeros); a.StatusCode != http.StatusBadRequest || !bytes.Contains(text, []byte("outputs=binary")) {
		t.Errorf("%d %s", a.StatusCode, text)
	}
	if a, text = post("/v2/models/identity/infer?outputs=binary", "", "identity",
		zeros); a.StatusCode != http.StatusOK || !bytes.HasSuffix(text, zeros) {
		t.Errorf("%d, %d bytes", a.StatusCode, len(text))
	}
	// A text in pieces fits into the budget; a whole text would not.
	big := bytes.Repeat([]byte{200}, 3<<20)
	if a, text = post(fmt.Sprintf("/v2/models/identity/infer?datatype=UINT8&shape=%d&outputs=json", len(big)), "0",
		"identity", big); a.StatusCode != http.StatusOK || len(text) < 4*len(big) {
		t.Errorf("%d, %.200s", a.StatusCode, text)
	}
	r.NoLeases()
}
