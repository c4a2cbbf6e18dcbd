package sinks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/outbound"
	"millrace/stream"
)

const natsSubjectMax = 1024 // bytes

var natsAddress = brokerAddress{"nats", "4222", "tls", "4222", "sinks.nats_subject"}

func init() {
	Register(Kind{Name: "nats", Remote: true, New: func() Settings { return new(NATS) }})
}

// NATS publishes results to a NATS server.
type NATS struct {
	URL         string `json:"nats" request:"any" advanced:"yes" example:"tls://127.0.0.1:9" help:"publish results to this NATS server: nats://USER:PASSWORD@HOST:4222, or tls:// with TLS; JetStream acknowledges results of a subject with a stream"`
	Send        string `json:"nats_send" words:"results events" default:"results" request:"any" advanced:"yes" help:"results, or only events of lines and zones, and clips; with data, events wait on disk (docs/events.md)"`
	Subject     string `json:"nats_subject" request:"any" advanced:"yes" help:"subject; default: millrace.NAME.results or millrace.NAME.events, with the stream's name"`
	Credentials string `json:"nats_creds" path:"file" secret:"yes" advanced:"yes" help:"file with the credentials (.creds) of the user"`
	CA          string `json:"nats_ca" path:"file" advanced:"yes" help:"PEM file with the certificate authorities of the server, in place of the system's"`
}

// Enabled implements Settings.
func (c *NATS) Enabled() bool { return c.URL != "" }

func (c *NATS) sendsEvents() bool { return c.Send == sendEvents }

// Validate implements Settings.
func (c *NATS) Validate() error {
	if c.URL == "" {
		for key, set := range map[string]bool{"nats_send": c.Send != "", "nats_subject": c.Subject != "",
			"nats_creds": c.Credentials != "", "nats_ca": c.CA != ""} {
			if set {
				return stream.Errorf(stream.InvalidArgument, "sinks."+key, "is set without sinks.nats")
			}
		}
		return nil
	}
	u, err := natsAddress.parse(c.URL)
	if err != nil {
		return stream.Errorf(stream.InvalidArgument, "sinks.nats", "%w", err)
	}
	if c.CA != "" && u.Scheme != "tls" {
		return stream.Errorf(stream.InvalidArgument, "sinks.nats_ca", "is set without an address tls:// in sinks.nats")
	}
	if c.Credentials != "" && u.User != nil {
		return stream.Errorf(stream.InvalidArgument, "sinks.nats_creds",
			"is set, and sinks.nats has a user, too: give one")
	}
	if t := c.Subject; t != "" {
		if strings.ContainsAny(t, "*>") || strings.ContainsFunc(t, unicode.IsSpace) ||
			strings.ContainsFunc(t, unicode.IsControl) || strings.Contains("."+t+".", "..") || t[0] == '$' {
			return stream.Errorf(stream.InvalidArgument, "sinks.nats_subject", "%q has *, >, blanks, an empty part or "+
				"begins with $: want a subject such as millrace.gate", t)
		}
		if len(t) > natsSubjectMax {
			return stream.Errorf(stream.InvalidArgument, "sinks.nats_subject", "is longer than %d bytes",
				natsSubjectMax)
		}
	}
	return nil
}

// subjectOf returns the default subject of a stream. A name cannot add a part or a wildcard.
func subjectOf(name, content string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c <= ' ', c == 0x7f, strings.IndexByte("%.*>", c) >= 0:
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return "millrace." + b.String() + "." + content
}

// Open implements Settings. The sink refuses addresses forbidden by Env.Allow after every look-up of the name.
func (c *NATS) Open(e Env) Sink {
	content := cmp.Or(c.Send, sendResults)
	p := &natsPublisher{settings: *c, subject: cmp.Or(c.Subject, subjectOf(e.Stream, content)), allow: e.Allow}
	var invalid error
	p.address, invalid = natsAddress.parse(c.URL)
	return newBatches("nats", p.address, invalid, e, c.sendsEvents(), p)
}

// natsPublisher publishes to JetStream if a stream has the subject, and otherwise without JetStream: a message then
// ends when the server has read the message.
type natsPublisher struct {
	settings NATS
	subject  string
	allow    func(netip.Addr) error
	address  *url.URL

	conn   *nats.Conn
	closed chan struct{}       // closed with conn
	stream jetstream.JetStream // nil = no stream has the subject
}

// natsDialer dials under the rule of addresses.
type natsDialer struct {
	ctx   context.Context
	allow func(netip.Addr) error
}

// Dial implements nats.CustomDialer.
func (d natsDialer) Dial(network, address string) (net.Conn, error) {
	return outbound.Dialer(batchTimeout, d.allow).DialContext(d.ctx, network, address)
}

func (p *natsPublisher) connect(ctx context.Context) error {
	closed := make(chan struct{})
	options := []nats.Option{nats.Name("millrace"), nats.NoReconnect(), nats.Timeout(batchTimeout),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
		nats.SetCustomDialer(natsDialer{ctx, p.allow})}
	if p.address.Scheme == "tls" {
		config, err := secured(p.address.Hostname(), "nats_ca", p.settings.CA)
		if err != nil {
			return err
		}
		options = append(options, nats.Secure(config))
	}
	if p.settings.Credentials != "" {
		options = append(options, nats.UserCredentials(p.settings.Credentials))
	}
	conn, err := nats.Connect(p.address.String(), options...)
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return errors.New("the server refuses the user or the password of the address, or the credentials")
	case err != nil:
		return err
	}
	p.conn, p.closed = conn, closed
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(batchMost))
	if err != nil {
		return err
	}
	_, err = js.StreamNameBySubject(ctx, p.subject)
	switch {
	case err == nil:
		p.stream = js
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
	default:
		return fmt.Errorf("the server does not tell whether a stream has the subject %s (allow the user to publish to "+
			"$JS.API.STREAM.NAMES and to subscribe to _INBOX.>): %w", p.subject, err)
	}
	return nil
}

func (p *natsPublisher) publish(ctx context.Context, list []message) (ended []error, err error) {
	acks := make([]jetstream.PubAckFuture, 0, len(list))
	refused := make([]error, len(list))
	sent := 0
	for ; sent < len(list) && err == nil; sent++ {
		m := nats.NewMsg(p.subject)
		m.Data = list[sent].text
		m.Header.Set(nats.MsgIdHdr, list[sent].id)
		var ack jetstream.PubAckFuture
		if p.stream != nil {
			ack, err = p.stream.PublishMsgAsync(m)
		} else {
			err = p.conn.PublishMsg(m)
		}
		if errors.Is(err, nats.ErrMaxPayload) {
			refused[sent] = fmt.Errorf("a result of %d bytes is lost: the server takes %d bytes", len(m.Data),
				p.conn.MaxPayload())
			ack, err = nil, nil
		}
		if err != nil {
			break
		}
		acks = append(acks, ack)
	}
	if p.stream == nil {
		if flush := p.conn.FlushWithContext(ctx); flush != nil {
			return nil, cmp.Or(p.conn.LastError(), flush)
		}
		if last := p.conn.LastError(); errors.Is(last, nats.ErrPermissionViolation) {
			return nil, fmt.Errorf("the user may not publish to %s: %w", p.subject, last)
		}
		return refused[:sent], err
	}
	for i, ack := range acks {
		if ack == nil {
			ended = append(ended, refused[i])
			continue
		}
		select {
		case <-ack.Ok():
			ended = append(ended, nil)
		case err := <-ack.Err():
			return ended, fmt.Errorf("the server does not acknowledge a result: %w", err)
		case <-p.closed:
			return ended, cmp.Or(p.conn.LastError(), errors.New("the server closes the connection"))
		case <-ctx.Done():
			return ended, fmt.Errorf("the server has not acknowledged a result for %v", batchTimeout)
		}
	}
	return ended, err
}

func (p *natsPublisher) close() {
	if p.conn != nil {
		p.conn.Close()
	}
	p.conn, p.stream = nil, nil
}
