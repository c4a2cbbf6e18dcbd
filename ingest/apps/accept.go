package apps

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/internal/httpd"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
)

const typeJSON = "application/json"

// accepts returns whether a client names events or JSON in Accept. A header without either leaves the form to the
// route.
func (x *Exchange) accepts() (events, asJSON bool) {
	for one := range strings.SplitSeq(x.Ctx.Get(fiber.HeaderAccept), ",") {
		media, _, _ := strings.Cut(one, ";")
		switch strings.ToLower(strings.TrimSpace(media)) {
		case httpd.EventStream:
			events = true
		case typeJSON:
			asJSON = true
		}
	}
	return events, asJSON
}

// form is how the answers to a request are sent.
type form uint8

const (
	single form = iota // the one answer is the reply
	events             // an event for each answer
	array              // the answers are a JSON array
	only               // the one answer of a route of events is the reply
)

// form returns how the answers to a request with that body are sent.
func (x *Exchange) form(body []byte) (form, error) {
	switch named, asJSON := x.accepts(); {
	case x.Route.OpenAI:
		var ask struct {
			Stream bool `json:"stream"`
		}
		if json.Unmarshal(body, &ask) == nil && ask.Stream { // what is wrong with the body, the program says
			return events, nil
		}
		return only, nil
	case x.Route.Events && x.style.Forms && asJSON && !named:
		return array, nil
	case x.Route.Events:
		return events, x.takesEvents()
	case x.style.Forms && named && !asJSON && x.Route.ContentType == "":
		return events, nil
	}
	return single, nil
}

// collect runs a request to a route of events and returns its reply: the answers as a JSON array, or with alone the
// one answer. The memory of the body is the reply's.
func (x *Exchange) collect(f stream.Frame, alone bool) (a Answer, err error) {
	ctx, cancel := x.limit(x.a.http.Context(x.Ctx, x.s.ctx))
	defer cancel()
	c := collected{pool: x.s.backend.Memory(), alone: alone}
	defer c.release()
	each := func(r *stream.Result) error {
		data, err := element(r)
		if err != nil {
			return stream.Errorf(stream.Internal, "", "an answer of program %s cannot be sent: %w", x.Program.Name, err)
		}
		return c.add(data)
	}
	r, err := x.s.oneShot.InferStream(ctx, x.client, x.Program.modelOf(x.Route), "", f, each)
	x.Result = r
	x.trace()
	if err = x.loading(statusOf(err, r)); err != nil {
		return a, err
	}
	defer r.Release()
	if err = x.answer(&a, r); err != nil {
		r.CountUnsendable(err)
		return a, err
	}
	if len(a.Body) > 0 || a.Status >= fiber.StatusBadRequest { // else an empty one ends the parts
		if a.Status >= fiber.StatusBadRequest {
			c.restart() // the reply of the program
		}
		err = c.add(a.Body)
	}
	if err != nil {
		r.CountUnsendable(err)
		return a, err
	}
	if a.Status < fiber.StatusBadRequest {
		a.ContentType = typeJSON
	}
	a.Body, a.Memory = c.take()
	return a, nil
}

// collected are the answers to a request, in memory that is charged to the budget.
type collected struct {
	pool     *buf.Pool
	alone    bool
	verbatim bool // the one answer is an error of the program
	text     []byte
	parts    int
	charged  int64
}

func (c *collected) restart() { c.alone, c.verbatim, c.text, c.parts = true, true, c.text[:0], 0 }

// add adds an answer: JSON as it is, another text as a string.
func (c *collected) add(data []byte) error {
	if c.parts++; c.alone && c.parts > 1 {
		return stream.Errorf(stream.Internal, "",
			"the program has answered several times, although the request has no \"stream\": true: answer once then")
	}
	if grown := 2 * (len(c.text) + len(data) + 16); grown > cap(c.text) {
		if err := c.pool.Charge(int64(grown)); err != nil {
			return err
		}
		c.charged += int64(grown)
		c.text = append(make([]byte, 0, grown), c.text...)
	}
	if !c.alone {
		c.text = append(c.text, "[,"[min(c.parts-1, 1)])
	}
	switch {
	case c.verbatim || json.Valid(data):
		c.text = append(c.text, bytes.TrimSpace(data)...)
	default:
		c.text = oip.AppendString(c.text, string(data))
	}
	return nil
}

// take returns the text with its memory, which the caller then owns.
func (c *collected) take() ([]byte, *buf.Buf) {
	if !c.alone {
		if c.parts == 0 {
			c.text = append(c.text, '[')
		}
		c.text = append(c.text, ']')
	}
	pool, n := c.pool, c.charged
	c.charged = 0
	return c.text, pool.Lend(c.text, func() { pool.Refund(n) })
}

func (c *collected) release() { c.pool.Refund(c.charged) }

// openAIError is an error in the form of OpenAI's interface.
func openAIError(err error) []byte {
	kind := "invalid_request_error"
	if status := httpd.StatusOf(err); status >= fiber.StatusInternalServerError {
		kind = "server_error"
	} else if status == fiber.StatusTooManyRequests {
		kind = "rate_limit_error"
	}
	type inner struct {
		Message string      `json:"message"`
		Type    string      `json:"type"`
		Code    stream.Code `json:"code"`
	}
	text, _ := json.Marshal(struct {
		Error inner `json:"error"`
	}{inner{err.Error(), kind, stream.CodeOf(err)}}) // strings only
	return text
}

// doneEvent ends the events of OpenAI's form.
var doneEvent = []byte("[DONE]")
