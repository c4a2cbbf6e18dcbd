package apps

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/internal/httpd"
	"millrace/stream"
	"millrace/stream/coded"
)

// This file has what services written for OctoAI have besides their methods, as its server
// answered it: see docs/migrating.md.

// octoaiTime is the header by which the child says how long the method has run, in
// milliseconds (python/millrace/_octoai.py). It is not sent to clients.
const octoaiTime = "octoai-inference-time-ms"

// The states of OctoAI's server that clients can see. STOPPED cannot be seen: nobody answers.
const (
	octoaiUninitialized = "UNINITIALIZED"
	octoaiLaunch        = "LAUNCH_PREDICT_LOOP" // a process is started
	octoaiSetup         = "SETUP_SERVICE"       // it is being loaded
	octoaiRunning       = "RUNNING"
	octoaiShuttingDown  = "SHUTTING_DOWN"
)

func init() {
	register(&Style{
		Name: "octoai", Root: []string{"/", "/openapi.json"},
		Serve: octoaiServe, Starting: octoaiStarting, Answer: octoaiAnswer, Fail: octoaiFail,
	})
}

// octoaiExtra is App.Extra of the style.
type octoaiExtra struct {
	async   bool
	replica string
}

func octoaiExtraOf(app *stream.App) octoaiExtra {
	e := octoaiExtra{async: true}
	if v, ok := app.Extra["async_enable"].(bool); ok {
		e.async = v
	}
	e.replica, _ = app.Extra["replica_name"].(string)
	return e
}

// octoaiState returns the state of a program.
func octoaiState(x *Exchange) string {
	switch {
	case x.a.requests.Closing() || x.s != nil && x.s.backend.State().Draining:
		return octoaiShuttingDown
	case x.s == nil:
		return octoaiUninitialized
	case x.Program.App == nil: // not loaded
		for _, e := range x.s.backend.Models().Index() {
			if e.Name == x.Program.Name && e.State == "LOADING" {
				return octoaiSetup
			}
		}
		return octoaiLaunch
	case !x.Program.Ready:
		return octoaiLaunch
	}
	return octoaiRunning
}

// octoaiServe answers /, /healthcheck and the documents.
func octoaiServe(x *Exchange) (bool, error) {
	if m := x.Ctx.Method(); m != http.MethodGet && m != http.MethodHead {
		return false, nil
	}
	at := "/apps/" + url.PathEscape(x.Program.Name)
	if x.Alone {
		at = ""
	}
	switch x.Path {
	case "/":
		return true, x.Ctx.JSON(struct {
			Docs    string `json:"docs"`
			OpenAPI string `json:"openapi"`
		}{at + "/docs", at + "/openapi.json"})
	case "/healthcheck":
		return true, octoaiHealth(x, octoaiExtraOf(x.Program.App).async)
	case "/openapi.json":
		return true, x.document()
	}
	return false, nil
}

func octoaiHealth(x *Exchange, async bool) error {
	state := octoaiState(x)
	if state != octoaiRunning {
		x.Ctx.Status(fiber.StatusServiceUnavailable)
	}
	return x.Ctx.JSON(struct {
		Status string `json:"status"`
		Async  bool   `json:"async_enable"`
	}{state, async})
}

// octoaiStarting answers for a service that is not loaded yet, or no more.
func octoaiStarting(x *Exchange, err error) (bool, error) {
	if x.Path == "/healthcheck" && x.Ctx.Method() == http.MethodGet {
		return true, octoaiHealth(x, true)
	}
	if x.a.opts.Style != "octoai" || x.Program.Name != x.a.opts.Root {
		return false, nil
	}
	x.a.noModel.Refuse("", err)
	octoaiUnavailable(x).write(x.Ctx)
	return true, nil
}

// octoaiUnavailable is the reply to a request that cannot be answered in the present state.
func octoaiUnavailable(x *Exchange) *Answer {
	body, err := json.Marshal(map[string]string{"status": octoaiState(x)})
	if err != nil {
		panic(err) // of strings
	}
	return &Answer{Status: fiber.StatusServiceUnavailable, ContentType: fiber.MIMEApplicationJSON, Body: body}
}

// octoaiAnswer puts the output of a method, which is the reply's body, beside the times.
func octoaiAnswer(x *Exchange, a *Answer) {
	ran, ok := a.Header[octoaiTime]
	if !ok {
		return // refused by the program
	}
	header := maps.Clone(a.Header)
	delete(header, octoaiTime)
	header["OCTOAI_REPLICA_NAME"] = octoaiExtraOf(x.Program.App).replica
	a.Header = header
	if _, err := strconv.ParseFloat(ran, 64); err != nil {
		ran = "0"
	}
	const before, middle, after, most = `{"output":`, `,"analytics":{"inference_time_ms":`, `,"performance_time_ms":`, 32
	size := len(before) + len(a.Body) + len(middle) + len(ran) + len(after) + most
	lease, err := x.s.backend.Memory().Lease(size)
	if err != nil {
		*a = *octoaiError(err)
		return
	}
	b := append(lease.Bytes()[:0], before...)
	b = append(append(append(b, a.Body...), middle...), ran...)
	b = strconv.AppendFloat(append(b, after...), float64(time.Since(x.Began))/float64(time.Millisecond), 'f', 6, 64)
	a.Body, a.Memory = append(b, "}}"...), lease
}

// octoaiFail answers requests that failed in the form of FastAPI.
func octoaiFail(x *Exchange, err error) *Answer {
	if stream.CodeOf(err) == stream.Unavailable || stream.CodeOf(err) == stream.Draining {
		return octoaiUnavailable(x)
	}
	return octoaiError(err)
}

func octoaiError(err error) *Answer {
	status := httpd.StatusOf(err)
	told, _ := coded.Told(err)
	text := told.Error()
	switch status {
	case fiber.StatusInternalServerError: // the log has the reason
		return &Answer{Status: status, ContentType: fiber.MIMETextPlainCharsetUTF8, Body: []byte(http.StatusText(status))}
	case fiber.StatusNotFound, fiber.StatusMethodNotAllowed:
		text = http.StatusText(status)
	}
	body, err := json.Marshal(map[string]string{"detail": text})
	if err != nil {
		panic(err) // of strings
	}
	return &Answer{Status: status, ContentType: fiber.MIMEApplicationJSON, Body: body}
}
