// Package calls is the protocol at /models/infer: a text message is a call in the form of the Open Inference
// Protocol. The call's input is the address of a video; each frame of the video gets a reply in the same form.
package calls

import (
	"io"
	"slices"
	"strings"

	"millrace/ingest"
	"millrace/ingest/ws/conn"
	"millrace/ingest/ws/pull"
	"millrace/ingest/ws/query"
	"millrace/ingest/ws/replies"
	"millrace/stream"
)

type protocol struct {
	conn   *conn.Conn
	region stream.Region
	puller pull.Puller
}

// New returns the protocol on c. The policy of q applies to every pulled video; the region of q must be empty, or
// each call is refused.
func New(c *conn.Conn, client *ingest.Client, q query.Options, limits *pull.Limits) conn.Protocol {
	return &protocol{conn: c, region: q.Region, puller: pull.Puller{Conn: c, Client: client, Limits: limits,
		Policy: q.Policy, Trace: q.Trace, Result: result}}
}

// result encodes the result of a frame as a reply.
func result(e *conn.Encoder, r *stream.Result, from *pull.Source) (msg []byte, isBinary bool, err error) {
	e.Begin(r)
	e.Int("seq", int64(r.Seq))
	e.Int("pts_us", r.CaptureUS)
	if err = e.Reply(from.Call.ID); err == nil && from.Call.Key != "" {
		text := replies.Call{Key: from.Call.Key}.Append([]byte{'{'})
		e.Text = slices.Replace(e.Text, 0, 1, text...)
	}
	return e.Text, false, err
}

// Open implements conn.Protocol.
func (p *protocol) Open() error { return nil }

// Binary implements conn.Protocol.
func (p *protocol) Binary(r io.Reader) error {
	p.sendError(replies.Call{}, stream.Errorf(stream.InvalidArgument, "",
		"a call is a text message: frames go to /v2/models/NAME/stream"))
	return p.conn.Skip(r)
}

// Text implements conn.Protocol.
func (p *protocol) Text(msg []byte) {
	o, err := parseCall(msg)
	if err == nil && p.region != (stream.Region{}) {
		err = stream.Errorf(stream.Unsupported, "roi",
			"is for pictures that clients send: a pulled video is scaled before it is read")
	}
	if err == nil {
		o.Model = p.named(o.Model)
		err = p.puller.Start(o)
	}
	if err != nil {
		p.sendError(o.Call, err)
	}
}

// named returns the configured name of a model: clients of AMD Inference Server spell model names in any case, and
// their endpoints are in lower case.
func (p *protocol) named(model string) string {
	if lower := strings.ToLower(model); lower != model {
		_, _, err := p.puller.Client.Models().Model(model, "")
		if stream.CodeOf(err) == stream.NotFound {
			if _, _, err := p.puller.Client.Models().Model(lower, ""); err == nil {
				return lower
			}
		}
	}
	return model
}

func (p *protocol) sendError(of replies.Call, err error) {
	p.conn.Push(conn.Entry{Text: replies.Error(of, err)})
}

// Close implements conn.Protocol.
func (p *protocol) Close(conn.Ending) { p.conn.Drain(p.puller.Close) }
