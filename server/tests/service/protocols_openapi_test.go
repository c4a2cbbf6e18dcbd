package service_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"millrace/config"
	"millrace/ingest/streams"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/workers"
)

// TestOpenAPI: the document is OpenAPI 3.1 and lists the loaded models with their tensors, and the server's requests
// and replies match the document.
func TestOpenAPI(t *testing.T) {
	s, end := servertest.RunWith(t, server.Config{
		HTTP: "127.0.0.1:0", GRPC: server.Off, Log: config.Log{Level: "error"},
		Models: []workers.Config{{Name: "echo", Source: "identity"}, {Name: "find.it_2-x", Source: "motion"},
			{Name: "find.it-2-x", Source: "motion"}, {Name: "find-it.2_x", Source: "motion"}},
		Streams: []streams.Config{{Name: "door", Source: "http://127.0.0.1:1/x", Model: "echo"}},
	})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	_, text := servertest.Get(t, s, "/openapi.json")
	described := routesOf(t, text)
	ids := map[string]bool{}
	for _, id := range regexp.MustCompile(`"operationId":"[^"]*"`).FindAllString(text, -1) {
		if ids[id] {
			t.Errorf("%s is there twice", id)
		}
		ids[id] = true
	}
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 320, 240))); err != nil {
		t.Fatal(err)
	}
	pictureText := base64.StdEncoding.EncodeToString(picture.Bytes())
	tensors := `{"id":"7","inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2]}]}`
	for _, c := range []struct {
		method, path, contentType, body string
		status                          int
	}{
		{"GET", "/v2", "", "", 200},
		{"GET", "/v2/health/live", "", "", 200},
		{"GET", "/v2/health/ready", "", "", 200},
		{"GET", "/health/startup", "", "", 200},
		{"GET", "/v2/models", "", "", 200},
		{"GET", "/v2/models/echo", "", "", 200},
		{"GET", "/v2/models/echo/versions/1", "", "", 200},
		{"GET", "/v2/models/nosuch", "", "", 404},
		{"GET", "/v2/models/echo/ready", "", "", 200},
		{"GET", "/v2/repository/index", "", "", 200},
		{"POST", "/v2/repository/index", "application/json", `{"ready":true}`, 200},
		{"POST", "/v2/repository/models/delay/load", "application/json", `{"parameters":{"fixed":"1ms"}}`, 200},
		{"POST", "/v2/repository/models/delay/unload", "application/json", `{}`, 200},
		{"GET", "/v2/status", "", "", 200},
		{"GET", "/v2/logging", "", "", 200},
		{"POST", "/v2/logging", "application/json", `{"level":"error"}`, 200},
		{"GET", "/v2/traces", "", "", 200},
		{"GET", "/v2/streams", "", "", 200},
		{"GET", "/v2/streams/door", "", "", 200},
		{"PATCH", "/v2/streams/door", "application/json", `{"paused":true}`, 200},
		{"POST", "/v2/streams", "application/json", `{}`, 400},
		{"DELETE", "/v2/streams/nosuch", "", "", 404},
		{"POST", "/v2/tickets", "", "", 200},
		{"GET", "/v2/systemsharedmemory/status", "", "", 200},
		{"POST", "/v2/models/echo/infer", "application/json", tensors, 200},
		{"POST", "/v2/models/echo/infer", "application/json", `{"inputs":[]}`, 400},
		{"POST", "/v2/models/echo/versions/1/infer", "application/json", tensors, 200},
		{"POST", "/v2/models/find.it_2-x/infer", "image/png", picture.String(), 200},
		{"POST", "/v2/models/find.it_2-x/infer", "application/json",
			`{"inputs":[{"name":"image","datatype":"BYTES","shape":[1],"data":["` + pictureText + `"]}]}`, 200},
		{"POST", "/v2/models/find.it_2-x/infer", "application/json",
			`{"inputs":[{"name":"image","datatype":"BYTES","shape":[1],"data":["` + pictureText +
				`"]}],"outputs":[{"name":"boxes","parameters":{"classification":3}}]}`, 200},
	} {
		req, err := http.NewRequest(c.method, "http://"+s.Addr("http")+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if c.contentType != "" {
			req.Header.Set("Content-Type", c.contentType)
		}
		reply, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if err != nil || reply.StatusCode != c.status {
			t.Errorf("%s %s: %d, %v\n%s", c.method, c.path, reply.StatusCode, err, body)
			continue
		}
		req.Body = io.NopCloser(strings.NewReader(c.body))
		if err := checkExchange(described, req, reply, body); err != nil {
			t.Errorf("%s %s: %v\n%s", c.method, c.path, err, body)
		}
	}
}

// routesOf parses the document, validates the document against OpenAPI 3.1, and returns its routes.
func routesOf(t *testing.T, text string) routers.Router {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	document.Servers = nil // the router matches no path below a relative address
	if err := document.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	described, err := gorillamux.NewRouter(document)
	if err != nil {
		t.Fatal(err)
	}
	openapi3filter.RegisterBodyDecoder("image/png", openapi3filter.FileBodyDecoder)
	return described
}

// checkExchange checks a reply against the document, and the request, too, when the server
// has accepted the request.
func checkExchange(described routers.Router, req *http.Request, reply *http.Response, body []byte) error {
	route, parameters, err := described.FindRoute(req)
	if err != nil {
		return err
	}
	request := &openapi3filter.RequestValidationInput{Request: req, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
			RejectWhenRequestBodyNotSpecified: true}}
	if reply.StatusCode == http.StatusOK {
		if err := openapi3filter.ValidateRequest(req.Context(), request); err != nil {
			return fmt.Errorf("the request: %w", err)
		}
	}
	answer := &openapi3filter.ResponseValidationInput{RequestValidationInput: request, Status: reply.StatusCode,
		Header:  reply.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true}}
	if err := openapi3filter.ValidateResponse(req.Context(), answer.SetBodyBytes(body)); err != nil {
		return fmt.Errorf("the reply: %w", err)
	}
	return nil
}

// TestOpenAPIOfModels: the document follows the loaded models, and refuses requests that a model does not accept.
func TestOpenAPIOfModels(t *testing.T) {
	s, end := servertest.Run(t, workers.Config{Name: "find", Source: "motion"})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	paths := func() map[string]map[string]any {
		var d struct {
			Paths map[string]map[string]any `json:"paths"`
		}
		_, text := servertest.Get(t, s, "/openapi.json")
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		return d.Paths
	}
	post := func(path string) {
		r, err := http.Post("http://"+s.Addr("http")+path, "application/json", nil)
		if err != nil || r.StatusCode != 200 {
			t.Fatalf("%v, %v", r, err)
		}
		_ = r.Body.Close()
	}
	post("/v2/repository/models/repeat/load") // a decoupled model
	if all := paths(); all["/v2/models/repeat/infer_stream"] == nil || all["/v2/models/repeat/infer"] != nil {
		t.Error("a decoupled model is not described by infer_stream alone")
	}
	find := paths()["/v2/models/find/infer"]["post"]
	text, _ := json.Marshal(find)
	for _, want := range []string{`"image/jpeg"`, "input image UINT8 [-1,240,320,1]", "output boxes FP32",
		"model.find.request"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	if paths()["/v2/models/delay/infer"] != nil {
		t.Error("a model that is not loaded is described")
	}
	post("/v2/repository/models/delay/load")
	if paths()["/v2/models/delay/infer"] == nil {
		t.Error("a loaded model is not described")
	}
	post("/v2/repository/models/delay/unload")
	for begun := time.Now(); paths()["/v2/models/delay/infer"] != nil; {
		if time.Since(begun) > 30*time.Second {
			t.Fatal("an unloaded model is still described")
		}
	}
}
