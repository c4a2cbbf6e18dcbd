package apps

import (
	"bytes"
	"fmt"
	"html"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/internal/httpd"
	"millrace/stream"
	"millrace/stream/coded"
)

// The style of programs that were written for mosec. Their texts and the names of their
// metrics are mosec's, since clients know them.
func init() {
	register(&Style{
		Name:     "mosec",
		Root:     []string{"/", "/metrics", "/openapi/metadata.json", "/openapi/swagger", "/openapi/swagger/"},
		Serve:    mosecServe,
		Starting: mosecStarting,
		Begin: func(x *Exchange) error {
			mosecOf(x).begin()
			return mosecReady(x)
		},
		Limit:   func(x *Exchange) time.Duration { return time.Duration(x.number("timeout_ms")) * time.Millisecond },
		MaxBody: func(x *Exchange) int { return int(x.number("max_request_size")) },
		Body:    mosecBody,
		Fail:    mosecFail,
		Event:   mosecEvent,
		Eager:   true,
		Ended:   mosecEnded,
	})
}

// number returns a number of the program's App.Extra, or 0.
func (x *Exchange) number(key string) int64 {
	switch v := x.Program.App.Extra[key].(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	}
	return 0
}

// mosecWait is the longest time for which a request waits until all stages have a worker:
// clients of mosec expect that a server which listens answers.
const mosecWait = 10 * time.Second

// mosecReady waits until all stages of the program have a worker.
func mosecReady(x *Exchange) error {
	if x.Program.Ready || !x.a.draining() && x.awaitReady(mosecWait) {
		return nil
	}
	if x.a.draining() {
		return ingest.ErrDraining
	}
	return stream.Errorf(stream.Unavailable, "", "a stage of program %s has no worker: see the log", x.Program.Name)
}

// mosecStarting waits until the program at the root is loaded, and then answers.
func mosecStarting(x *Exchange, err error) (bool, error) {
	if x.a.opts.Style != "mosec" || x.Program.Name != x.a.opts.Root || stream.CodeOf(err) == stream.Draining {
		return false, nil
	}
	if x.a.draining() || !x.awaitReady(mosecWait) {
		return false, nil
	}
	return true, x.a.serve(x.Ctx, x.Program.Name, x.Path, x.Alone)
}

// mosecServe answers what every application has besides its routes.
func mosecServe(x *Exchange) (bool, error) {
	c := x.Ctx
	if m := c.Method(); m != fiber.MethodGet && m != fiber.MethodHead {
		return false, nil
	}
	switch x.Path {
	case "/":
		if !x.Alone {
			return false, nil
		}
		if err := mosecReady(x); err != nil {
			return true, err
		}
		return true, c.SendString("MOSEC service")
	case "/metrics":
		namespace, _ := x.Program.App.Extra["namespace"].(string)
		c.Set(fiber.HeaderContentType, "text/plain; version=0.0.4; charset=utf-8")
		return true, c.Send(mosecOf(x).text(namespace))
	case "/openapi/metadata.json":
		return true, x.document()
	case "/openapi/swagger", "/openapi/swagger/":
		c.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
		return true, c.Send(mosecPage(x.Program))
	}
	return false, nil
}

// mosecPage is a page with the routes.
func mosecPage(p *Program) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!DOCTYPE html><title>%s</title><h1>%[1]s</h1><p><a href=\"../openapi/metadata.json\">OpenAPI document</a></p><ul>", html.EscapeString(p.Name))
	for _, r := range p.App.Routes {
		fmt.Fprintf(&b, "<li>%s <code>%s</code> answers %s</li>", html.EscapeString(r.Method), html.EscapeString(r.Path), html.EscapeString(r.ContentType))
	}
	b.WriteString("</ul>")
	return b.Bytes()
}

// mosecBody answers requests without a body.
func mosecBody(_ *Exchange, body []byte) *Answer {
	if len(body) > 0 {
		return nil
	}
	return &Answer{Status: fiber.StatusOK, ContentType: fiber.MIMETextPlainCharsetUTF8, Body: []byte("no data provided")}
}

// mosecFail gives errors of the server mosec's statuses and texts.
func mosecFail(x *Exchange, err error) *Answer {
	told, _ := coded.Told(err)
	status, text := mosecError(told)
	if x.Route == nil && stream.CodeOf(err) != stream.Draining {
		return nil // not of its routes
	}
	return &Answer{Status: status, ContentType: fiber.MIMETextPlainCharsetUTF8, Body: []byte(text)}
}

func mosecError(err error) (status int, text string) {
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

// mosecStatuses are mosec's names of statuses in events.
var mosecStatuses = map[int]string{400: "Bad Request", 408: "Request Timeout", 422: "Unprocessable Content", 500: "Internal Server Error"}

// mosecEvent is the last event of a request that failed.
func mosecEvent(x *Exchange, err error) (name string, data []byte) {
	status, text := mosecError(err)
	if x.Result != nil && x.Result.Reply != nil && x.Result.Reply.Status >= fiber.StatusBadRequest { // the program's own
		status, text = x.Result.Reply.Status, err.Error()
	}
	of, ok := mosecStatuses[status]
	if !ok {
		status, of = fiber.StatusInternalServerError, mosecStatuses[fiber.StatusInternalServerError]
	}
	return "error", fmt.Appendf(nil, "SSE inference error: %d: %s: %s", status, of, text)
}

// mosecEnded counts a request.
func mosecEnded(x *Exchange, status int, err error) {
	if err != nil {
		status, _ = mosecError(err)
	}
	if x.Route.Events && x.Result != nil {
		status = fiber.StatusOK // of the reply, whose events say more
	}
	mosecOf(x).end(mosecRoute{status, x.Route.Path}, time.Since(x.Began))
}

// Ran counts a run of a batch for the metrics of the application whose stage the model is: the rows of the batch, the time
// to gather the rows, and the time of the run.
func (a *Adapter) Ran(model string, rows int, gathered, took time.Duration) {
	i := strings.LastIndexByte(model, '.')
	if i < 0 {
		return
	}
	a.statesMu.Lock()
	m, ok := a.states[model[:i]].(*mosecCounts)
	a.statesMu.Unlock()
	if ok {
		m.ran(model[i+1:], rows, gathered, took)
	}
}

func mosecOf(x *Exchange) *mosecCounts {
	limit := time.Duration(x.number("timeout_ms")) * time.Millisecond
	if m, ok := x.State(func() any { return newMosecCounts(limit) }).(*mosecCounts); ok {
		return m
	}
	return newMosecCounts(limit) // the program's name was one of another style before
}

// mosecCounts are the metrics of an application. Their labels are bounded by its routes and
// stages.
type mosecCounts struct {
	mu        sync.Mutex
	remaining int
	requests  map[mosecRoute]uint64
	total     histogram
	stages    map[string]*mosecStage
	longest   int // buckets of durations
}

type mosecRoute struct {
	status int
	path   string
}

type mosecStage struct{ rows, gathered, took histogram }

func newMosecCounts(limit time.Duration) *mosecCounts {
	n := 13
	if ms := float64(limit) / float64(time.Millisecond); ms > 1 {
		n = int(math.Ceil(math.Log2(ms))) + 1
	}
	return &mosecCounts{requests: map[mosecRoute]uint64{}, stages: map[string]*mosecStage{}, longest: n, total: newHistogram(0.001, n)}
}

func (m *mosecCounts) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remaining++
}

func (m *mosecCounts) end(of mosecRoute, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remaining--
	m.requests[of]++
	if of.status == fiber.StatusOK {
		m.total.observe(took.Seconds())
	}
}

func (m *mosecCounts) ran(stage string, rows int, gathered, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stages[stage]
	if s == nil {
		s = &mosecStage{newHistogram(1, 10), newHistogram(0.001, 13), newHistogram(0.001, m.longest)}
		m.stages[stage] = s
	}
	s.rows.observe(float64(rows))
	s.gathered.observe(gathered.Seconds())
	s.took.observe(took.Seconds())
}

// text writes the metrics in Prometheus' text format.
func (m *mosecCounts) text(namespace string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b bytes.Buffer
	head := func(name, kind, help string) {
		fmt.Fprintf(&b, "# HELP %s_%s %s\n# TYPE %[1]s_%[2]s %[4]s\n", namespace, name, help, kind)
	}
	head("throughput_total", "counter", "requests by route and status")
	routes := slices.SortedFunc(maps.Keys(m.requests), func(a, b mosecRoute) int {
		return slices.Compare([]string{a.path, strconv.Itoa(a.status)}, []string{b.path, strconv.Itoa(b.status)})
	})
	for _, r := range routes {
		fmt.Fprintf(&b, "%s_throughput_total{code=\"%d\",endpoint=%q} %d\n", namespace, r.status, r.path, m.requests[r])
	}
	stages := slices.Sorted(maps.Keys(m.stages))
	each := func(name, help string, of func(*mosecStage) *histogram) {
		head(name, "histogram", help)
		if name == "process_duration_second" && m.total.count > 0 {
			m.total.write(&b, namespace+"_"+name, "total", "total")
		}
		for _, s := range stages {
			of(m.stages[s]).write(&b, namespace+"_"+name, s, "all")
		}
	}
	each("process_duration_second", "time of the runs of each stage, and of whole requests", func(s *mosecStage) *histogram { return &s.took })
	each("batch_size", "requests in the runs of each stage", func(s *mosecStage) *histogram { return &s.rows })
	each("batch_duration_second", "time in which the batches of each stage were gathered", func(s *mosecStage) *histogram { return &s.gathered })
	head("remaining_task", "gauge", "requests that have no answer yet")
	fmt.Fprintf(&b, "%s_remaining_task %d\n", namespace, m.remaining)
	return b.Bytes()
}

// histogram counts values in buckets, each of which is twice the one before.
type histogram struct {
	first   float64
	buckets []uint64 // the last bucket has the larger values
	sum     float64
	count   uint64
}

func newHistogram(first float64, n int) histogram {
	return histogram{first: first, buckets: make([]uint64, n+1)}
}

func (h *histogram) observe(v float64) {
	i, bound := 0, h.first
	for i < len(h.buckets)-1 && v > bound {
		i++
		bound *= 2
	}
	h.buckets[i]++
	h.sum += v
	h.count++
}

func (h *histogram) write(b *bytes.Buffer, name, stage, connection string) {
	labels := fmt.Sprintf("stage=%q,connection=%q", stage, connection)
	n, bound := uint64(0), h.first
	for _, k := range h.buckets[:len(h.buckets)-1] {
		n += k
		fmt.Fprintf(b, "%s_bucket{le=\"%s\",%s} %d\n", name, strconv.FormatFloat(bound, 'g', 6, 64), labels, n)
		bound *= 2
	}
	fmt.Fprintf(b, "%[1]s_bucket{le=\"+Inf\",%[2]s} %[3]d\n%[1]s_sum{%[2]s} %[4]s\n%[1]s_count{%[2]s} %[3]d\n", name, labels, h.count, strconv.FormatFloat(h.sum, 'g', -1, 64))
}
