package sinks

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/outbound"
	"millrace/stream"
)

const natsSubjectMax = 1024 // bytes

func init() {
	Register(Kind{Name: "nats", Remote: true, New: func() Settings { return new(NATS) }})
}

// NATS publishes results to a NATS server.
type NATS struct {
	URL         string `json:"nats" request:"any" advanced:"yes" example:"tls://127.0.0.1:9" help:"publish results to this NATS server: nats://USER:PASSWORD@HOST:4222, or tls:// with TLS; JetStream acknowledges results of a subject with a stream"`
	Send        string `json:"nats_send" words:"results events" default:"results" request:"any" advanced:"yes" help:"results, or only events of lines and zones, and clips; with data, events wait on disk (docs/events.md)"`
	Subject     string `json:"nats_subject" request:"any" advanced:"yes" help:"subject; default: millrace.NAME.results or millrace.NAME.events, with the stream's name"`
	Credentials string `json:"nats_creds" path:"file" advanced:"yes" help:"file with the credentials (.creds) of the user"`
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
	u, err := natsServer(c.URL)
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

// natsServer parses the address of a server.
func natsServer(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "" {
		return nil, errors.New("is not an address such as nats://HOST:4222 or tls://HOST:4222")
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("has a path, query or fragment, and an address of a NATS server has none: set the " +
			"subject by sinks.nats_subject")
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || port == 0) {
		return nil, fmt.Errorf("has the port %s, and a port is 1 to 65535", u.Port())
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "4222")
	}
	return u, nil
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
	p.address, p.invalid = natsServer(c.URL)
	host := ""
	if p.address != nil {
		host = p.address.Host
	}
	return newBatches("nats", host, e, c.sendsEvents(), p)
}

// natsPublisher publishes to JetStream if a stream has the subject, and otherwise without JetStream: a message then
// ends when the server has read the message.
type natsPublisher struct {
	settings NATS
	subject  string
	allow    func(netip.Addr) error
	address  *url.URL
	invalid  error

	conn   *nats.Conn
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
	if p.invalid != nil {
		return p.invalid
	}
	options := []nats.Option{nats.Name("millrace"), nats.NoReconnect(), nats.Timeout(batchTimeout),
		nats.SetCustomDialer(natsDialer{ctx, p.allow})}
	if p.address.Scheme == "tls" {
		config := &tls.Config{ServerName: p.address.Hostname(), MinVersion: tls.VersionTLS12}
		if p.settings.CA != "" {
			var err error
			if config.RootCAs, err = authorities("nats_ca", p.settings.CA); err != nil {
				return err
			}
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
	p.conn = conn
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
