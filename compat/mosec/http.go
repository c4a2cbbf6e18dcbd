package mosec

import (
	"bytes"
	"fmt"
	"html"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/apps"
	"millrace/internal/httpd"
	"millrace/stream"
	"millrace/stream/coded"
)

// The style of programs that were written for mosec. Their texts and the names of their
// metrics are mosec's, since clients know them.
var routes = apps.Style{
	Name:     name,
	Root:     []string{"/", "/metrics", "/openapi/metadata.json", "/openapi/swagger", "/openapi/swagger/"},
	Serve:    serve,
	Starting: starting,
	Begin: func(x *apps.Exchange) error {
		countsOf(x).begin()
		return ready(x)
	},
	Limit:   timeout,
	MaxBody: func(x *apps.Exchange) int { return int(number(x, "max_request_size")) },
	Body:    emptyBody,
	Fail:    fail,
	Event:   event,
	Eager:   true,
	Ended:   ended,
}

func timeout(x *apps.Exchange) time.Duration {
	return time.Duration(number(x, "timeout_ms")) * time.Millisecond
}

// number returns a number of the program's App.Extra, or 0.
func number(x *apps.Exchange, key string) int64 {
	switch v := x.Program.App.Extra[key].(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	}
	return 0
}

// readyWait is the longest time for which a request waits until all stages have a worker:
// clients of mosec expect that a server which listens answers.
const readyWait = 10 * time.Second

// ready waits until all stages of the program have a worker.
func ready(x *apps.Exchange) error {
	if x.Program.Ready || !x.Draining() && x.AwaitReady(readyWait) {
		return nil
	}
	if x.Draining() {
		return ingest.ErrDraining
	}
	return stream.Errorf(stream.Unavailable, "", "a stage of program %s has no worker: see the log", x.Program.Name)
}

// starting waits until the program at the root is loaded, and then answers.
func starting(x *apps.Exchange, err error) (bool, error) {
	if !x.Configured(name) || stream.CodeOf(err) == stream.Draining {
		return false, nil
	}
	if x.Draining() || !x.AwaitReady(readyWait) {
		return false, nil
	}
	return true, x.Serve()
}

// serve answers what every application has besides its routes.
func serve(x *apps.Exchange) (bool, error) {
	c := x.Ctx
	if m := c.Method(); m != fiber.MethodGet && m != fiber.MethodHead {
		return false, nil
	}
	switch x.Path {
	case "/":
		if !x.AtRoot {
			return false, nil
		}
		if err := ready(x); err != nil {
			return true, err
		}
		return true, c.SendString("MOSEC service")
	case "/metrics":
		namespace, _ := x.Program.App.Extra["namespace"].(string)
		c.Set(fiber.HeaderContentType, "text/plain; version=0.0.4; charset=utf-8")
		return true, c.Send(countsOf(x).text(namespace))
	case "/openapi/metadata.json":
		return true, x.Document()
	case "/openapi/swagger", "/openapi/swagger/":
		c.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
		return true, c.Send(page(x.Program))
	}
	return false, nil
}

// page is a page with the routes.
func page(p *apps.Program) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!DOCTYPE html><title>%s</title><h1>%[1]s</h1><p><a href=\"../openapi/metadata.json\">OpenAPI "+
		"document</a></p><ul>", html.EscapeString(p.Name))
	for _, r := range p.App.Routes {
		fmt.Fprintf(&b, "<li>%s <code>%s</code> answers %s</li>", html.EscapeString(r.Method),
			html.EscapeString(r.Path), html.EscapeString(r.ContentType))
	}
	b.WriteString("</ul>")
	return b.Bytes()
}

// emptyBody answers requests without a body.
func emptyBody(_ *apps.Exchange, body []byte) *apps.Answer {
	if len(body) > 0 {
		return nil
	}
	return &apps.Answer{Status: fiber.StatusOK, ContentType: fiber.MIMETextPlainCharsetUTF8,
		Body: []byte("no data provided")}
}

// fail gives errors of the server mosec's statuses and texts.
func fail(x *apps.Exchange, err error) *apps.Answer {
	told, _ := coded.ClientError(err)
	status, text := errorOf(told)
	if x.Route == nil && stream.CodeOf(err) != stream.Draining {
		return nil // not of its routes
	}
	return &apps.Answer{Status: status, ContentType: fiber.MIMETextPlainCharsetUTF8, Body: []byte(text)}
}

func errorOf(err error) (status int, text string) {
	switch stream.CodeOf(err) {
	case stream.Timeout:
		return fiber.StatusRequestTimeout, "inference timeout"
	case stream.Overloaded, stream.FlowControl:
		return fiber.StatusTooManyRequests, "too many request: task queue is full"
	case stream.TooLarge:
		return fiber.StatusRequestEntityTooLarge, "request body is too large"
	case stream.Draining:
		return fiber.StatusServiceUnavailable, "gracefully shutting down"
	case stream.Internal:
		return fiber.StatusInternalServerError, "inference internal error: " + err.Error()
	}
	return httpd.StatusOf(err), err.Error()
}

// statusNames are mosec's names of statuses in events.
var statusNames = map[int]string{400: "Bad Request", 408: "Request Timeout", 422: "Unprocessable Content",
	500: "Internal Server Error"}

// event is the last event of a request that failed.
func event(x *apps.Exchange, err error) (name string, data []byte) {
	status, text := errorOf(err)
	// the program's own
	if x.Result != nil && x.Result.Reply != nil && x.Result.Reply.Status >= fiber.StatusBadRequest {
		status, text = x.Result.Reply.Status, err.Error()
	}
	of, ok := statusNames[status]
	if !ok {
		status, of = fiber.StatusInternalServerError, statusNames[fiber.StatusInternalServerError]
	}
	return "error", fmt.Appendf(nil, "SSE inference error: %d: %s: %s", status, of, text)
}

// ended counts a request.
func ended(x *apps.Exchange, status int, err error) {
	if err != nil {
		status, _ = errorOf(err)
	}
	if x.Route.Events && x.Result != nil {
		status = fiber.StatusOK // of the reply, whose events say more
	}
	countsOf(x).end(outcome{status, x.Route.Path}, time.Since(x.Began))
}

func countsOf(x *apps.Exchange) *counts {
	limit := timeout(x)
	if m, ok := x.State(func() any { return newCounts(limit) }).(*counts); ok {
		return m
	}
	return newCounts(limit) // the program's name was one of another style before
}
