package ingest

import (
	"context"
	"slices"
	"strings"

	"millrace/internal/inferencepb"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/stream/buf"
)

// Client is a client that a Gate has let in, with the server as the client may use it: a Backend that refuses models which the client may not
// use, and charges the client's quotas. The zero Client, and a nil one, may do nothing. A Client is safe for concurrent use.
type Client struct {
	gate    *Gate
	of      *Principal // nil = the owner, or a client without credentials
	account *Account   // nil only for the owner and open
	owner   bool
	open    bool       // the call needs no credentials, and has shown none
	vouched bool       // a Go program vouches for the client; there are no credentials
	refused *Principal // who was refused, of a client that may do nothing
}

var (
	_ Backend    = (*Client)(nil)
	_ Repository = (*models)(nil)
)

// errStranger is the error of a call whose client no gate has let in.
var errStranger = stream.Errorf(stream.PermissionDenied, "", "the client of this call is not known: no gate has let it in")

// ClientOf returns the client of a call by the value under which the call has it; nil, which may do nothing, when there is none.
func ClientOf(value any) *Client { c, _ := value.(*Client); return c }

// ClientKey is the key under which the context of a call has its client.
type ClientKey struct{}

// entered returns nil for a client that a gate has let in.
func (c *Client) entered() error {
	if c == nil || c.gate == nil {
		return errStranger
	}
	return nil
}

// For returns nil if the client may do what a call needs. Errors: PermissionDenied.
func (c *Client) For(n Need) error {
	switch err := c.entered(); {
	case err != nil:
		return err
	case n.Role == 0:
		return errNoRole
	case c.owner:
		return nil
	case c.open:
		if n.Role != role.Open {
			return errStranger
		}
		return nil
	case c.of == nil:
		return nil
	}
	return c.of.may(n)
}

// Judge is For of a call that has entered with LaterScope. It counts the call of a client that is limited to some models, which Gate.Enter
// has left to it.
func (c *Client) Judge(n Need) error {
	err := c.For(n)
	if c.entered() == nil && c.of.Limited() && !c.vouched {
		c.gate.count(err)
	}
	return err
}

// Call begins a further call of a client, whose credentials were shown before: it returns the client with the roles and models that it has
// now, and counts the call in the quotas. Errors: those of Gate.Enter.
func (c *Client) Call(n Need) (*Client, error) {
	if err := c.entered(); err != nil {
		return nil, err
	}
	now := c
	switch {
	case c.owner:
		return c, nil
	case c.of != nil && !c.vouched:
		p, err := c.gate.access.Current(c.of)
		if err != nil {
			c.gate.access.Count(Expired)
			return &Client{refused: c.of}, err
		}
		now = c.gate.client(p, c.gate.access.AccountOf(p, Credentials{}))
	case c.vouched:
		now = c.gate.Vouch(c.of)
	}
	err := now.For(n)
	if c.of != nil && !c.vouched {
		c.gate.count(err)
	}
	if err != nil {
		return &Client{refused: c.of}, err
	}
	return now, now.account.Core().Take(stream.QuotaRequests, 1, 0)
}

// Err returns why the credentials of the client are not valid any more, or give other roles or models than before; nil while they are as
// they were.
func (c *Client) Err() error {
	if err := c.entered(); err != nil {
		return err
	}
	if c.of == nil || c.vouched {
		return nil
	}
	return c.gate.access.Unchanged(c.of)
}

// OnEnd calls end once, with the reason, when Err is not nil any more. end must not block. stop says that the client has ended by itself.
func (c *Client) OnEnd(end func(error)) (stop func()) {
	if c.entered() != nil || c.of == nil || c.vouched {
		return func() {}
	}
	return c.gate.access.Lasting().Add(c.of, end)
}

// Principal returns who the client is, or who was refused; nil where clients need no credentials, and for the owner.
func (c *Client) Principal() *Principal {
	switch {
	case c == nil:
		return nil
	case c.refused != nil:
		return c.refused
	}
	return c.of
}

// Name returns the name of the client in logs and in the metadata of workers; "" = it has none.
func (c *Client) Name() string {
	if p := c.Principal(); p != nil {
		return p.Name
	}
	return ""
}

// Account returns the account of the client; nil for the owner, and for a client that no gate has let in.
func (c *Client) Account() *Account {
	if c == nil {
		return nil
	}
	return c.account
}

// Core returns the part of the account that frames have.
func (c *Client) Core() *stream.Account { return c.Account().Core() }

// SameAs reports whether two clients have the same identity and the same rights.
func (c *Client) SameAs(other *Client) bool {
	return c.entered() == nil && other.entered() == nil && c.of.Same(other.of)
}

// Known reports whether a gate has let the client in with what the call has shown: false for a nil client, and for a call that needs no
// credentials and has shown none.
func (c *Client) Known() bool { return c.entered() == nil && !c.open }

// Charge charges a frame for a model to the client, whose frame it is from then on. OneShot and Sequences do it. Errors: PermissionDenied;
// FlowControl, for the client's quotas.
func (c *Client) Charge(model string, f *stream.Frame) error {
	if err := c.models().may(model); err != nil {
		return err
	}
	if c.owner {
		return nil
	}
	f.Account = c.Core()
	return f.Account.TakeFrame(f, 0)
}

// Hold takes a place of the client's quotas.streams, for a call that opens several streams with OpenHeld. release gives it back. Errors:
// FlowControl.
func (c *Client) Hold() (release func(), err error) {
	if err := c.entered(); err != nil {
		return nil, err
	}
	if err := c.Core().Hold(stream.QuotaStreams); err != nil {
		return nil, err
	}
	return func() { c.Core().Release(stream.QuotaStreams) }, nil
}

// OpenHeld is Open for a stream of a call that has a place by Hold. Frames of a stream with opts.OneShot are charged by Charge, one by one.
func (c *Client) OpenHeld(model, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	if err := c.models().may(model); err != nil {
		return nil, err
	}
	if !opts.OneShot {
		opts.Account = c.Core()
	}
	return c.gate.backend.Open(model, version, opts, sink)
}

// Open implements Backend. The stream takes a place of the client's quotas.streams, and its frames are charged to the client.
func (c *Client) Open(model, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	if err := c.models().may(model); err != nil {
		return nil, err
	}
	if c.owner {
		return c.gate.backend.Open(model, version, opts, sink)
	}
	if err := c.account.Hold(stream.QuotaStreams); err != nil {
		return nil, err
	}
	opts.Account, opts.Place, opts.OneShot = &c.account.Account, true, false
	s, err := c.gate.backend.Open(model, version, opts, sink)
	if err != nil {
		c.account.Release(stream.QuotaStreams)
	}
	return s, err
}

// Models implements Backend.
func (c *Client) Models() Repository { return c.models() }

func (c *Client) models() *models { return (*models)(c) }

// Memory implements Backend.
func (c *Client) Memory() *buf.Pool {
	if c.entered() != nil {
		return nil
	}
	return c.gate.backend.Memory()
}

// Sequences implements Backend.
func (c *Client) Sequences() *Sequences {
	if c.entered() != nil {
		return nil
	}
	return c.gate.backend.Sequences()
}

// State implements Backend.
func (c *Client) State() State {
	if c.entered() != nil {
		return State{}
	}
	return c.gate.backend.State()
}

// models is the repository as a client may use it.
type models Client

// all returns the repository of the server, and the error of a client that may not use it.
func (m *models) all() (Repository, error) {
	switch err := (*Client)(m).entered(); {
	case err != nil:
		return nil, err
	case m.open:
		return nil, errStranger
	}
	return m.gate.backend.Models(), nil
}

// may returns nil if the client may use a model.
func (m *models) may(name string) error {
	if _, err := m.all(); err != nil {
		return err
	}
	return m.of.AllowsModel(name)
}

// Model implements Repository. A call that needs no credentials may ask, too: whether a model is ready is open to all with auth.health.
func (m *models) Model(name, version string) (*stream.Model, bool, error) {
	if err := m.may(name); err != nil && ((*Client)(m).entered() != nil || !m.open) {
		return nil, false, err
	}
	return m.gate.backend.Models().Model(name, version)
}

// Choose implements Repository.
func (m *models) Choose(name string) string {
	if m.may(name) != nil {
		return ""
	}
	return m.gate.backend.Models().Choose(name)
}

// Versions implements Repository.
func (m *models) Versions(name string) []string {
	if m.may(name) != nil {
		return nil
	}
	return m.gate.backend.Models().Versions(name)
}

// Config implements Repository.
func (m *models) Config(name, version string) (*inferencepb.ModelConfig, error) {
	if err := m.may(name); err != nil {
		return nil, err
	}
	return m.gate.backend.Models().Config(name, version)
}

// Statistics implements Repository.
func (m *models) Statistics(name, version string) ([]*inferencepb.ModelStatistics, error) {
	all, err := m.all()
	if err == nil && name != "" {
		err = m.of.AllowsModel(name)
	}
	if err != nil {
		return nil, err
	}
	rows, err := all.Statistics(name, version)
	return slices.DeleteFunc(rows, func(s *inferencepb.ModelStatistics) bool { return m.of.AllowsModel(s.Name) != nil }), err
}

// Index implements Repository.
func (m *models) Index() []Entry {
	all, err := m.all()
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all.Index(), func(e Entry) bool { return m.of.AllowsModel(e.Name) != nil })
}

// Load implements Repository. The load is charged to the client, and the endpoint that it makes counts in quotas.endpoints.
func (m *models) Load(ctx context.Context, name string, how Load) (string, error) {
	if err := m.may(name); err != nil {
		return "", err
	}
	if m.of.Limited() && (len(how.Params) > 0 || how.Config != nil || how.Files != nil) { // which could name the files and steps of others
		return "", stream.Errorf(stream.PermissionDenied, "parameters", "%s is limited to the models %s, and may load them only as they are configured", m.of.Name, strings.Join(m.of.Models, ", "))
	}
	if m.owner {
		return m.gate.backend.Models().Load(ctx, name, how)
	}
	if err := m.account.Take(stream.QuotaLoads, 1, 0); err != nil {
		return "", err
	}
	how.Reserve = func(endpoint string, there bool) (func(there bool), error) {
		return m.account.reserve(m.gate.backend.Models(), endpoint, there)
	}
	return m.gate.backend.Models().Load(ctx, name, how)
}

// Unload implements Repository.
func (m *models) Unload(ctx context.Context, endpoint string, how Unload) error {
	if err := m.may(endpoint); err != nil {
		return err
	}
	if m.of.Limited() && how.Dependents {
		return stream.Errorf(stream.PermissionDenied, "unload_dependents", "%s is limited to the models %s, and these may be used by others", m.of.Name, strings.Join(m.of.Models, ", "))
	}
	if !m.owner {
		defer m.account.forgetUnloaded(m.gate.backend.Models())
	}
	return m.gate.backend.Models().Unload(ctx, endpoint, how)
}

// Scale implements Repository.
func (m *models) Scale(ctx context.Context, endpoint string, instances int) error {
	if err := m.may(endpoint); err != nil {
		return err
	}
	return m.gate.backend.Models().Scale(ctx, endpoint, instances)
}

// Actor returns a client for the audit log, who may do nothing: the principal that logs in or out, or was refused.
func Actor(p *Principal) *Client { return &Client{refused: p} }
