package rest_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// packed compresses data.
func packed(coding string, data []byte) []byte {
	var out bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&out)
	case "deflate":
		w = zlib.NewWriter(&out)
	case "zstd":
		w, _ = zstd.NewWriter(&out)
	}
	_, _ = w.Write(data)
	_ = w.Close()
	return out.Bytes()
}

// The server reads bodies in each content coding, also with binary tensors and on other routes.
func TestCompressedRequests(t *testing.T) {
	r := start(t, nil, "identity", "pair")
	head := `{"inputs":[{"name":"x","datatype":"UINT8","shape":[100000],"parameters":{"binary_data_size":100000}}],` +
		`"outputs":[{"name":"x","parameters":{"binary_data":true}}]}`
	data := bytes.Repeat([]byte("0123456789"), 10000)
	for _, coding := range []string{"gzip", "deflate", "zstd"} {
		body := packed(coding, append([]byte(head), data...))
		a := r.ask("POST", "/v2/models/identity/infer", body, "Content-Encoding: "+coding,
			fmt.Sprintf("Inference-Header-Content-Length: %d", len(head)))
		if a.StatusCode != 200 || !bytes.Equal(a.data(), data) {
			t.Errorf("%s: %s", coding, a.Status)
		}
		a = r.ask("POST", "/v2/repository/index", packed(coding, []byte(`{"ready":true}`)), "Content-Encoding: "+coding)
		if a.StatusCode != 200 {
			t.Errorf("%s: %v", coding, a)
		}
	}
	r.NoLeases()
}

// A reply above a minimum size is compressed when the client asks for compression, in JSON and as binary data.
func TestCompressedReplies(t *testing.T) {
	r := start(t, nil, "identity")
	request := func(n int, binary bool) []byte {
		numbers := bytes.TrimSuffix(bytes.Repeat([]byte("1,"), n), []byte(","))
		return fmt.Appendf(nil, `{"parameters":{"binary_data_output":%v},"inputs":[{"name":"x","datatype":"UINT8",`+
			`"shape":[%d],"data":[%s]}]}`, binary, n, numbers)
	}
	for _, binary := range []bool{false, true} {
		plain := r.ask("POST", "/v2/models/identity/infer", request(10000, binary), isJSON, "Accept-Encoding: identity")
		if plain.Header.Get("Content-Encoding") != "" {
			t.Errorf("Content-Encoding %q", plain.Header.Get("Content-Encoding"))
		}
		for accept, want := range map[string]string{"gzip": "gzip", "deflate": "deflate",
			"br, deflate;q=0.5, gzip;q=1.0": "gzip", "gzip;q=0, deflate": "deflate", "br": "", "gzip;q=0.0": ""} {
			a := r.ask("POST", "/v2/models/identity/infer", request(10000, binary), isJSON, "Accept-Encoding: "+accept)
			var got io.Reader = bytes.NewReader(a.body)
			var err error
			switch a.Header.Get("Content-Encoding") {
			case "gzip":
				got, err = gzip.NewReader(got)
			case "deflate":
				got, err = zlib.NewReader(got)
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(got)
			if a.Header.Get("Content-Encoding") != want || err != nil || !bytes.Equal(text, plain.body) {
				t.Errorf("%q: coding %q, want %q; %d bytes, want %d, %v", accept, a.Header.Get("Content-Encoding"),
					want, len(text), len(plain.body), err)
			}
			if n := a.Header.Get("Inference-Header-Content-Length"); n != plain.Header.Get(
				"Inference-Header-Content-Length") {
				t.Errorf("%q: header length %q", accept, n)
			}
		}
	}
	if a := r.ask("POST", "/v2/models/identity/infer", request(100, false), isJSON,
		"Accept-Encoding: gzip"); a.Header.Get("Content-Encoding") != "" {
		t.Error("a small reply is compressed")
	}
	r.NoLeases()
}

// Options known only to clients of other servers are ignored. TestRefusals checks this server's options.
func TestUnknownOptionsAreIgnored(t *testing.T) {
	r := start(t, nil, "pair")
	body := []byte(`{"inputs":[{"name":"a","datatype":"FP32","shape":[3],"data":[1,2,3]},{"name":"b",` +
		`"datatype":"FP32","shape":[1],"data":[4]}]}`)
	if a := r.ask("POST", "/v2/models/pair/infer?test_1=1&test_2=2", body, isJSON); a.StatusCode != 200 {
		t.Error(a)
	}
	for _, path := range []string{"/v2?test_1=1", "/v2/health/live?x", "/v2/models/pair?test=1",
		"/v2/models/pair/ready?a=b", "/v2/repository/index?a=b", "/v2/logging?a=b"} {
		if a := r.ask("GET", path, nil); a.StatusCode != 200 {
			t.Errorf("%s: %v", path, a)
		}
	}
}
