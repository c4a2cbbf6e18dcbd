package v1

import (
	"strconv"
	"time"

	"millrace/ingest"
	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/stream/rules"
)

// handle carries out a control message.
func (p *protocol) handle(m wire.Message) error {
	switch m := m.(type) {
	case *wire.Open:
		return p.open(m)
	case *wire.Update:
		return p.withChannel(m.SID, func(c *channel, st *stream.Stream) error { return p.update(m, c, st) })
	case *wire.Pause:
		return p.withChannel(m.SID, func(_ *channel, st *stream.Stream) error { st.Pause(); return nil })
	case *wire.Resume:
		return p.withChannel(m.SID, func(_ *channel, st *stream.Stream) error { st.Resume(); return nil })
	case *wire.Flush:
		return p.withChannel(m.SID, func(c *channel, st *stream.Stream) error { c.flush(st); return nil })
	case *wire.Close:
		return p.withChannel(m.SID, func(c *channel, st *stream.Stream) error { c.close(st); return nil })
	case *wire.Ping:
		if p.link.Ping() {
			p.session.send(&wire.Pong{T: m.T, ServerT: serverTime()})
		}
		return nil
	case *wire.Attach:
		return p.attach(m)
	}
	return stream.Errorf(stream.Unsupported, "type", "is not a message that clients send")
}

// withChannel calls f for an open stream.
func (p *protocol) withChannel(sid uint32, f func(*channel, *stream.Stream) error) error {
	c := p.session.channel(sid)
	if c == nil {
		return stream.Errorf(stream.NotFound, "sid", "%d is not open", sid)
	}
	return f(c, c.stream.Load())
}

// update changes a stream for all later frames. A failed update changes nothing.
func (p *protocol) update(m *wire.Update, c *channel, st *stream.Stream) error {
	form, err := conn.ParseOutputs(m.Outputs)
	if err != nil {
		return err
	}
	if m.Outputs != "" && c.form.full() && c.window.Unanswered() > 0 {
		return stream.Errorf(stream.FlowControl, "outputs",
			"%d forms hold for frames that are not answered yet, and that is the limit: wait for results", maxOutputs)
	}
	c.window.Resize(0) // no credit is given until then, since the stream might refuse the frames
	err = st.Replace(changed(st.Policy(), &m.Policy))
	c.window.Resize(st.Policy().Window)
	if err != nil {
		return err
	}
	if m.Outputs != "" {
		c.form.set(form, c.lastSeq.Load(), c.window.Unanswered() == 0)
	}
	if m.Params != nil {
		c.reader.params = stream.Params(m.Params)
	}
	p.session.send(&wire.Credit{SID: c.sid, CreditLimit: c.window.Limit(), Ack: c.window.Answered()})
	return nil
}

// changed returns p with the fields set in by. A field of 0 restores the model's default.
func changed(p stream.Policy, by *wire.PolicyChange) stream.Policy {
	if by.Mode != "" {
		p.Mode = stream.Mode(by.Mode)
	}
	if ms := by.MaxAgeMS; ms != nil {
		p.MaxAge = time.Duration(*ms) * time.Millisecond
	}
	if ms := by.DeadlineMS; ms != nil {
		p.Deadline = time.Duration(*ms) * time.Millisecond
	}
	if by.MaxFPS != nil {
		p.MaxFPS = *by.MaxFPS
	}
	if by.Window != nil {
		p.Window = *by.Window
	}
	return p
}

// policyOf returns the policy of an open message.
func policyOf(p wire.Policy) stream.Policy {
	return stream.Policy{
		Mode: stream.Mode(p.Mode), MaxAge: time.Duration(p.MaxAgeMS) * time.Millisecond,
		Deadline: time.Duration(p.DeadlineMS) * time.Millisecond, MaxFPS: p.MaxFPS, Window: p.Window,
	}
}

// open opens a stream and sends the stream's policy to the client.
func (p *protocol) open(m *wire.Open) error {
	c := &channel{window: ingest.NewWindow(), openOptions: openOptions{sid: m.SID, model: m.Model, codec: stream.Auto,
		width: m.Width, height: m.Height, traced: m.Trace}}
	version := m.Version
	if c.model == "" {
		c.model, version = p.model, p.version
	}
	if c.model == "" {
		return stream.Errorf(stream.InvalidArgument, "open.model", "is missing")
	}
	var err error
	if m.Codec != "" {
		if c.codec, err = stream.ParseCodec(m.Codec); err != nil {
			return err
		}
	}
	form, err := conn.ParseOutputs(m.Outputs)
	if err != nil {
		return err
	}
	c.form.set(form, 0, true)
	if m.Stateful {
		if err := p.checkStateful(c.model, version); err != nil {
			return err
		}
	}
	handle, err := rulesOf(m.Rules)
	if err != nil {
		return err
	}
	if handle != nil {
		if err := p.checkClasses(handle.Rules(), c.model, version); err != nil {
			return err
		}
	}
	if err := p.session.add(c); err != nil {
		return err
	}
	name := p.session.id + "/" + strconv.FormatUint(uint64(m.SID), 10)
	if handle != nil {
		c.clips = p.sessions.opts.Clips.Open(name, c.model, p.client.Memory())
	}
	p.sessions.MakeRoom(p.client.Account())
	opts := stream.Options{Policy: policyOf(m.Policy), Params: stream.Params(m.Params), Protocol: wire.Subprotocol,
		Rules: handle,
		Name:  name, Trace: p.trace}
	if err := p.session.open(c, version, opts); err != nil {
		c.clips.Close()
		return err
	}
	if _, err := p.openDecoder(c, c.codec); err != nil {
		t := errorMessage(err)
		t.SID = &c.sid
		p.session.send(t) // before the stream's end is sent
		c.stream.Load().Close(stream.ByError)
		return nil
	}
	policy := c.stream.Load().Policy()
	p.session.send(&wire.Opened{SID: c.sid, CreditLimit: c.window.Limit(), Policy: wire.Policy{
		Mode: string(policy.Mode), MaxAgeMS: int(policy.MaxAge.Milliseconds()),
		DeadlineMS: int(policy.Deadline.Milliseconds()),
		MaxFPS:     policy.MaxFPS, Window: policy.Window,
	}})
	return nil
}

// rulesOf reads the rules of an open message; nil = none.
func rulesOf(text []byte) (*rules.Handle, error) {
	if len(text) == 0 {
		return nil, nil
	}
	r, err := rules.Parse(text)
	if err != nil {
		return nil, coded.PrefixField("open.rules", err)
	}
	return rules.NewHandle(r), nil
}

// checkClasses returns an error for a class of a rule that the model does not have. The opening of the stream reports a
// model that is missing.
func (p *protocol) checkClasses(r *rules.Rules, model, version string) error {
	m, _, err := p.client.Models().Model(model, version)
	if err != nil || !m.AppliesRules {
		return nil
	}
	return coded.PrefixField("open.rules", r.CheckClasses(m.Classes))
}

// checkStateful returns an error when a stream needs a state and the model keeps none.
func (p *protocol) checkStateful(model, version string) error {
	m, _, err := p.client.Models().Model(model, version)
	if err != nil {
		return err
	}
	if !m.KeepsState() {
		return stream.Errorf(stream.Unsupported, "open.stateful",
			"model %s keeps no state of a stream: leave it out, or open the stream to a model that does", m.Name)
	}
	return nil
}
