package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

const httpConns = 16

// fiberServer is the bare loop: /read reads the body, /echo returns the body.
func fiberServer() (url string, end func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	app := fiber.New(fiber.Config{DisableStartupMessage: true, BodyLimit: 64 << 20})
	app.Post("/read", func(c *fiber.Ctx) error { return c.SendString(strconv.Itoa(len(c.Body()))) })
	app.Post("/echo", func(c *fiber.Ctx) error { return c.Send(c.Body()) })
	go app.Listener(ln) // ends with end
	return "http://" + ln.Addr().String(), func() { app.Shutdown() }, nil
}

// requester repeats one request on httpConns connections.
type requester struct {
	url, contentType string
	header           map[string]string
	body             []byte
	client           *fasthttp.HostClient
}

func newRequester(url, contentType string, body []byte, header map[string]string) *requester {
	addr, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	return &requester{url: url, contentType: contentType, header: header, body: body,
		client: &fasthttp.HostClient{Addr: addr, MaxConns: httpConns, MaxIdleConnDuration: time.Minute}}
}

// rate returns replies a second.
func (p *requester) rate(d time.Duration) (float64, error) { return p.rateOf(httpConns, d) }

// rateOf is rate over n connections.
func (p *requester) rateOf(n int, d time.Duration) (float64, error) {
	p.client.MaxConns = n
	return throughputOf(n, d, func(more func() bool, done func(int)) error {
		req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
		defer fasthttp.ReleaseRequest(req)
		defer fasthttp.ReleaseResponse(resp)
		p.fill(req)
		for more() {
			if err := p.do(req, resp); err != nil {
				return err
			}
			done(1)
		}
		return nil
	})
}

// fill makes req the request.
func (p *requester) fill(req *fasthttp.Request) {
	req.Header.SetMethod(fasthttp.MethodPost)
	req.SetRequestURI(p.url)
	req.Header.SetContentType(p.contentType)
	for k, v := range p.header {
		req.Header.Set(k, v)
	}
	req.SetBodyRaw(p.body)
}

// do makes the request, and reads the reply into resp.
func (p *requester) do(req *fasthttp.Request, resp *fasthttp.Response) error {
	err := p.client.Do(req, resp)
	if err == nil && resp.StatusCode() != fasthttp.StatusOK {
		err = fmt.Errorf("%s: %d: %.200s", p.url, resp.StatusCode(), resp.Body())
	}
	return err
}

// rest compares inference of a binary tensor with a bare handler: once when both read the tensor, once when both also
// return the tensor, and once, an unequal comparison, when only Millrace returns the tensor.
func rest(b *bench) error {
	bare, end, err := fiberServer()
	if err != nil {
		return err
	}
	defer end()
	for _, c := range []struct {
		name, does, bare, outputs string
		size                      int
		limit                     float64
	}{
		{"30 KB", "read", "/read", "none", 30 << 10, 0.80},
		{"30 KB", "sent back", "/echo", "binary", 30 << 10, 0.80},
		{"30 KB", "sent back, bare reads only", "/read", "binary", 30 << 10, 0},
		{"1 KB", "sent back", "/echo", "binary", 1 << 10, 0.70},
		{"600 KB", "sent back", "/echo", "binary", 600 << 10, 0},
	} {
		body := make([]byte, c.size)
		query := fmt.Sprintf("?datatype=UINT8&shape=1,%d&outputs=%s", c.size, c.outputs)
		x := newRequester(bare+c.bare, fiber.MIMEOctetStream, body, nil)
		y := newRequester(b.server.infer("identity", query), fiber.MIMEOctetStream, body,
			map[string]string{"Inference-Header-Content-Length": "0"})
		row, err := b.pair("REST tensor, "+c.name+", "+c.does, "requests/s", x.rate, y.rate)
		x.client.CloseIdleConnections()
		y.client.CloseIdleConnections()
		if err != nil {
			return err
		}
		b.add(row.atLeast(c.limit))
	}
	return nil
}

func (t *target) infer(model, query string) string {
	return "http://" + t.addr + "/v2/models/" + model + "/infer" + query
}

// jsonNumbers compares a picture as JSON numbers with a bare handler that reads the same body.
func jsonNumbers(b *bench) error {
	bare, end, err := fiberServer()
	if err != nil {
		return err
	}
	defer end()
	body := []byte(`{"inputs":[{"name":"input","shape":[1,224,224,3],"datatype":"UINT8","data":[`)
	for i, v := 0, uint32(1); i < 224*224*3; i++ {
		v = v*1664525 + 1013904223
		if i > 0 {
			body = append(body, ',')
		}
		body = strconv.AppendUint(body, uint64(v>>24), 10)
	}
	body = append(body, "]}]}"...)
	x := newRequester(bare+"/read", fiber.MIMEApplicationJSON, body, nil)
	y := newRequester(b.server.infer("identity", "?outputs=binary"), fiber.MIMEApplicationJSON, body, nil)
	row, err := b.pair("REST 224x224x3 JSON numbers", "requests/s", x.rate, y.rate)
	x.client.CloseIdleConnections()
	y.client.CloseIdleConnections()
	if err != nil {
		return err
	}
	b.add(row.atLeast(0.30))
	return nil
}
