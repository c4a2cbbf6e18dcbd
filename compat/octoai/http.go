package octoai

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/apps"
	"millrace/internal/httpd"
	"millrace/stream"
	"millrace/stream/coded"
)

// timeHeader is the header by which the child says how long the method has run, in
// milliseconds (python/compat/millrace_compat/octoai.py). It is not sent to clients.
const timeHeader = "octoai-inference-time-ms"

// The states of OctoAI's server that clients can see. STOPPED cannot be seen: nobody answers.
const (
	uninitialized = "UNINITIALIZED"
	launch        = "LAUNCH_PREDICT_LOOP" // a process is started
	setup         = "SETUP_SERVICE"       // it is being loaded
	running       = "RUNNING"
	shuttingDown  = "SHUTTING_DOWN"
)

var routes = apps.Style{
	Name: name, Root: []string{"/", "/openapi.json"},
	Serve: serve, Starting: starting, Answer: answer, Fail: fail,
}

// extra is App.Extra of the style.
type extra struct {
	async   bool
	replica string
}

func extraOf(app *stream.App) extra {
	e := extra{async: true}
	if v, ok := app.Extra["async_enable"].(bool); ok {
		e.async = v
	}
	e.replica, _ = app.Extra["replica_name"].(string)
	return e
}

// stateOf returns the state of a program.
func stateOf(x *apps.Exchange) string {
	switch {
	case x.Draining():
		return shuttingDown
	case x.Backend() == nil:
		return uninitialized
	case x.Program.App == nil: // not loaded
		for _, e := range x.Backend().Models().Index() {
			if e.Name == x.Program.Name && e.State == "LOADING" {
				return setup
			}
		}
		return launch
	case !x.Program.Ready:
		return launch
	}
	return running
}

// serve answers /, /healthcheck and the documents.
func serve(x *apps.Exchange) (bool, error) {
	if m := x.Ctx.Method(); m != http.MethodGet && m != http.MethodHead {
		return false, nil
	}
	at := "/apps/" + url.PathEscape(x.Program.Name)
	if x.AtRoot {
		at = ""
	}
	switch x.Path {
	case "/":
		return true, x.Ctx.JSON(struct {
			Docs    string `json:"docs"`
			OpenAPI string `json:"openapi"`
		}{at + "/docs", at + "/openapi.json"})
	case "/healthcheck":
		return true, health(x, extraOf(x.Program.App).async)
	case "/openapi.json":
		return true, x.Document()
	}
	return false, nil
}

func health(x *apps.Exchange, async bool) error {
	state := stateOf(x)
	if state != running {
		x.Ctx.Status(fiber.StatusServiceUnavailable)
	}
	return x.Ctx.JSON(struct {
		Status string `json:"status"`
		Async  bool   `json:"async_enable"`
	}{state, async})
}

// starting answers for a service that is not loaded yet, or no more.
func starting(x *apps.Exchange, err error) (bool, error) {
	if x.Path == "/healthcheck" && x.Ctx.Method() == http.MethodGet {
		return true, health(x, true)
	}
	if !x.Configured(name) {
		return false, nil
	}
	x.Refused(err)
	unavailable(x).Write(x.Ctx)
	return true, nil
}

// unavailable is the reply to a request that cannot be answered in the present state.
func unavailable(x *apps.Exchange) *apps.Answer {
	body, err := json.Marshal(map[string]string{"status": stateOf(x)})
	if err != nil {
		panic(err) // of strings
	}
	return &apps.Answer{Status: fiber.StatusServiceUnavailable, ContentType: fiber.MIMEApplicationJSON, Body: body}
}

// answer puts the output of a method, which is the reply's body, beside the times.
func answer(x *apps.Exchange, a *apps.Answer) {
	ran, ok := a.Header[timeHeader]
	if !ok {
		return // refused by the program
	}
	header := maps.Clone(a.Header)
	delete(header, timeHeader)
	header["OCTOAI_REPLICA_NAME"] = extraOf(x.Program.App).replica
	a.Header = header
	if _, err := strconv.ParseFloat(ran, 64); err != nil {
		ran = "0"
	}
	const before, middle, after, most = `{"output":`, `,"analytics":{"inference_time_ms":`, `,"performance_time_ms":`,
		32
	size := len(before) + len(a.Body) + len(middle) + len(ran) + len(after) + most
	lease, err := x.Backend().Memory().Lease(size)
	if err != nil {
		*a = *errorAnswer(err)
		return
	}
	b := append(lease.Bytes()[:0], before...)
	b = append(append(append(b, a.Body...), middle...), ran...)
	b = strconv.AppendFloat(append(b, after...), float64(time.Since(x.Began))/float64(time.Millisecond), 'f', 6, 64)
	a.Body, a.Memory = append(b, "}}"...), lease
}

// fail answers requests that failed in the form of FastAPI.
func fail(x *apps.Exchange, err error) *apps.Answer {
	if stream.CodeOf(err) == stream.Unavailable || stream.CodeOf(err) == stream.Draining {
		return unavailable(x)
	}
	return errorAnswer(err)
}

func errorAnswer(err error) *apps.Answer {
	status := httpd.StatusOf(err)
	told, _ := coded.ClientError(err)
	text := told.Error()
	switch status {
	case fiber.StatusInternalServerError: // the log has the reason
		return &apps.Answer{Status: status, ContentType: fiber.MIMETextPlainCharsetUTF8,
			Body: []byte(http.StatusText(status))}
	case fiber.StatusNotFound, fiber.StatusMethodNotAllowed:
		text = http.StatusText(status)
	}
	body, err := json.Marshal(map[string]string{"detail": text})
	if err != nil {
		panic(err) // of strings
	}
	return &apps.Answer{Status: status, ContentType: fiber.MIMEApplicationJSON, Body: body}
}
