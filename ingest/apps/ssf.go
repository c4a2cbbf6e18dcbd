package apps

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/internal/httpd"
)

func init() {
	register(&Style{Name: "ssf", Root: []string{"/", "/openapi.json"}, Serve: serveSSF, Answer: answerSSF, Fail: failSSF})
}

// The headers of replies of Simple Server Framework: seconds of the request here, and in the
// application.
const (
	requestLatency  = "Metrics-Request-Latency"
	dispatchLatency = "Metrics-Dispatch-Latency"
)

// serveSSF answers what Simple Server Framework has besides an application's endpoints, for one
// that is served alone.
func serveSSF(x *Exchange) (bool, error) {
	if m := x.Ctx.Method(); !x.Alone || m != fiber.MethodGet && m != fiber.MethodHead {
		return false, nil
	}
	x.Ctx.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	switch x.Path {
	case "/":
		return true, x.Ctx.SendString(`{"message":"OK"}`)
	case "/openapi.json":
		return true, x.document()
	}
	return false, nil
}

func answerSSF(x *Exchange, a *Answer) {
	header := make(map[string]string, len(a.Header)+1)
	for name, value := range a.Header {
		header[name] = value
	}
	header[requestLatency] = x.latency()
	a.Header = header
}

// failSSF answers in the form of FastAPI, which clients read.
func failSSF(x *Exchange, err error) *Answer {
	body, fault := json.Marshal(map[string]string{"detail": err.Error()})
	if fault != nil {
		return nil
	}
	return &Answer{Status: httpd.StatusOf(err), ContentType: fiber.MIMEApplicationJSON, Body: body, Header: map[string]string{requestLatency: x.latency()}}
}

func (x *Exchange) latency() string {
	return strconv.FormatFloat(time.Since(x.Began).Seconds(), 'f', 6, 64)
}

// Dispatched returns the time in the application of a request that was answered, as an
// application of Simple Server Framework says it.
func Dispatched(c *fiber.Ctx) (time.Duration, bool) {
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
