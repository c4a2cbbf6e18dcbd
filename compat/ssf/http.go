package ssf

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/apps"
	"millrace/internal/httpd"
)

const documentPath = "/openapi.json"

var routes = apps.Style{
	Name: name, Root: []string{"/", documentPath}, Serve: serve, Answer: addLatency, Fail: fail, InProgram: inProgram,
	Access: apps.Access{Open: []string{documentPath}, KeyInQuery: true, Refused: refusal},
}

// refusal is the reply that clients of Simple Server Framework expect.
func refusal(passwords bool) (status int, detail string) {
	if passwords {
		return fiber.StatusForbidden, "Invalid session (Login first with /session_login)"
	}
	return fiber.StatusForbidden, "Invalid credentials (Login first with /login?api_key=<key>)"
}

// The headers of replies of Simple Server Framework: seconds of the request here, and in the
// application.
const (
	requestLatency  = "Metrics-Request-Latency"
	dispatchLatency = "Metrics-Dispatch-Latency"
)

// serve answers what Simple Server Framework has besides an application's endpoints, for one
// that is served alone.
func serve(x *apps.Exchange) (bool, error) {
	if m := x.Ctx.Method(); !x.AtRoot || m != fiber.MethodGet && m != fiber.MethodHead {
		return false, nil
	}
	x.Ctx.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	switch x.Path {
	case "/":
		return true, x.Ctx.SendString(`{"message":"OK"}`)
	case documentPath:
		return true, x.Document()
	}
	return false, nil
}

func addLatency(x *apps.Exchange, a *apps.Answer) {
	header := make(map[string]string, len(a.Header)+1)
	for name, value := range a.Header {
		header[name] = value
	}
	header[requestLatency] = latency(x)
	a.Header = header
}

// fail answers in the form of FastAPI, which clients read.
func fail(x *apps.Exchange, err error) *apps.Answer {
	body, fault := json.Marshal(map[string]string{"detail": err.Error()})
	if fault != nil {
		return nil
	}
	return &apps.Answer{Status: httpd.StatusOf(err), ContentType: fiber.MIMEApplicationJSON, Body: body,
		Header: map[string]string{requestLatency: latency(x)}}
}

func latency(x *apps.Exchange) string {
	return strconv.FormatFloat(time.Since(x.Began).Seconds(), 'f', 6, 64)
}

// inProgram returns the time in the application of a request that was answered, as the application says it.
func inProgram(c *fiber.Ctx) (time.Duration, bool) {
	header := c.Response().Header.Peek(dispatchLatency)
	if len(header) == 0 {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(string(header), 64)
	if err != nil || !(seconds >= 0 && seconds < 1e6) {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}
