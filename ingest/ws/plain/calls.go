package plain

import (
	"io"
	"slices"
	"strings"

	"millrace/ingest"
	"millrace/ingest/ws/conn"
	"millrace/ingest/ws/query"
	"millrace/stream"
)

// calls is the protocol at /models/infer on one connection.
type calls struct {
	conn   *conn.Conn
	region stream.Region
	puller puller
}

// NewCalls returns the protocol at /models/infer on c. The policy of q applies to every pulled video; the region of q
// must be empty, or each call is refused.
func NewCalls(c *conn.Conn, client *ingest.Client, q query.Options, limits *PullLimits) conn.Protocol {
	return &calls{conn: c, region: q.Region, puller: puller{conn: c, client: client, limits: limits,
		policy: q.Policy, trace: q.Trace, result: callResult}}
}

// callResult encodes the result of a frame as a reply.
func callResult(e *conn.Encoder, r *stream.Result, from *videoInfo) (msg []byte, isBinary bool, err error) {
	e.Begin(r)
	e.Int("seq", int64(r.Seq))
	e.Int("pts_us", r.CaptureUS)
	if err = e.Reply(from.Call.ID); err == nil && from.Call.Key != "" {
		text := callID{Key: from.Call.Key}.append([]byte{'{'})
		e.Text = slices.Replace(e.Text, 0, 1, text...)
	}
	return e.Text, false, err
}

// Open implements conn.Protocol.
func (p *calls) Open() error { return nil }

// Binary implements conn.Protocol.
func (p *calls) Binary(r io.Reader) error {
	p.sendError(callID{}, stream.Errorf(stream.InvalidArgument, "",
		"a call is a text message: frames go to /v2/models/NAME/stream"))
	return p.conn.Skip(r)
}

// Text implements conn.Protocol.
func (p *calls) Text(msg []byte) {
	o, err := parseCall(msg)
	if err == nil && p.region != (stream.Region{}) {
		err = stream.Errorf(stream.Unsupported, "roi",
			"is for pictures that clients send: a pulled video is scaled before it is read")
	}
	if err == nil {
		o.Model = p.named(o.Model)
		err = p.puller.start(o)
	}
	if err != nil {
		p.sendError(o.Call, err)
	}
}

// named returns the configured name of a model: clients of AMD Inference Server spell model names in any case, and
// their endpoints are in lower case.
func (p *calls) named(model string) string {
	if lower := strings.ToLower(model); lower != model {
		_, _, err := p.puller.client.Models().Model(model, "")
		if stream.CodeOf(err) == stream.NotFound {
			if _, _, err := p.puller.client.Models().Model(lower, ""); err == nil {
				return lower
			}
		}
	}
	return model
}

func (p *calls) sendError(of callID, err error) {
	p.conn.Push(conn.Entry{Text: errorText(of, err)})
}

// Close implements conn.Protocol.
func (p *calls) Close(conn.Ending) { p.conn.Drain(p.puller.close) }
