package ingest

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"millrace/ingest/access"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/stream/buf"
)

// Client is a client that a Gate has let in. A Client is a Backend that refuses the models of other
// clients and charges the client's quotas. A zero Client, a nil Client, and soon after the end of its credentials any
// Client may do nothing. A Client is safe for concurrent use.
type Client struct {
	gate      *Gate
	principal *access.Principal // nil = the owner, or a client without credentials
	account   *access.Account   // nil only for the owner and open
	owner     bool
	open      bool              // a call with role.Open, without credentials
	trusted   bool              // a Go program vouches for the client; there are no credentials
	refused   *access.Principal // the refused principal of a client that may do nothing
	program   string            // the program whose models the client may use, too; "" = none

	// checked is when the credentials of a principal were last known to be valid, in nanoseconds of a stream.Instant.
	checked atomic.Int64
}

var (
	_ Backend    = (*Client)(nil)
	_ Repository = (*models)(nil)
)

// ClientOf returns the client in value; nil, which may do nothing, when value is no client.
func ClientOf(value any) *Client { c, _ := value.(*Client); return c }

// ClientKey is the key of the client in the context of a call.
type ClientKey struct{}

// entered returns nil if a gate has let the client in.
func (c *Client) entered() error {
	if c == nil || c.gate == nil {
		return access.ErrUnknownClient
	}
	return nil
}

// CheckRights returns nil if the client may make a call with a need. Errors: PermissionDenied; Unauthenticated, when
// the credentials of the client have ended.
func (c *Client) CheckRights(n access.Need) error {
	switch err := c.entered(); {
	case err != nil:
		return err
	case n.Role == 0:
		return access.ErrNoRole
	case c.owner:
		return nil
	case c.open:
		if n.Role != role.Open {
			return access.ErrUnknownClient
		}
		return nil
	case c.principal == nil:
		return nil
	}
	if err := c.valid(c.now()); err != nil {
		return err
	}
	return c.principal.Authorize(n)
}

// Authorize is CheckRights of a call that has entered with LaterScope. Authorize counts the call if the client's models
// are limited; otherwise Gate.Enter has counted the call.
func (c *Client) Authorize(n access.Need) error {
	err := c.CheckRights(n)
	if c.entered() == nil && c.principal.Limited() && !c.trusted {
		c.gate.count(err)
	}
	return err
}

// Call begins a further call of a client. Call returns the client with its present roles and models, and
// counts the call in the client's quotas. Errors: as of Gate.Enter.
func (c *Client) Call(n access.Need) (*Client, error) {
	now, err := c.Renew(n)
	if err != nil || now.owner {
		return now, err
	}
	return now, now.account.Core().Take(stream.QuotaRequests, 1, 0)
}

// Renew is Call without a count in the quotas.
func (c *Client) Renew(n access.Need) (*Client, error) {
	if err := c.entered(); err != nil {
		return nil, err
	}
	now := c
	switch {
	case c.owner:
		return c, nil
	case c.principal != nil && !c.trusted:
		p, err := c.gate.access.Current(c.principal)
		if err != nil {
			c.gate.access.Count(access.Expired)
			return &Client{refused: c.principal}, err
		}
		now = c.gate.client(p, c.gate.access.AccountOf(p, access.Credentials{}))
	case c.trusted:
		now = c.gate.TrustedClient(c.principal)
	}
	err := now.CheckRights(n)
	if c.principal != nil && !c.trusted {
		c.gate.count(err)
	}
	if err != nil {
		return &Client{refused: c.principal}, err
	}
	return now, nil
}

// ForProgram returns the client for a call of a permitted program: the client may also use the models of the program,
// named PROGRAM.MODEL.
func (c *Client) ForProgram(program string) *Client {
	if c.entered() != nil || !c.principal.Limited() || c.principal.AllowsModel(program) != nil {
		return c
	}
	in := &Client{gate: c.gate, principal: c.principal, account: c.account, trusted: c.trusted, program: program}
	in.checked.Store(c.checked.Load())
	return in
}

// Err returns an error when the credentials of the client are no longer valid, or the client's roles or
// models have changed.
func (c *Client) Err() error {
	if err := c.entered(); err != nil {
		return err
	}
	if c.principal == nil || c.trusted {
		return nil
	}
	now, err := c.gate.access.Current(c.principal)
	if err != nil {
		return err
	}
	return c.principal.Changed(now)
}

// checkInterval is the longest time that a client may use models without a check of the client's credentials.
const checkInterval = time.Second

// now returns the time for valid; 0 for a client without credentials. A reading of the clock costs more than the
// other steps of a charge.
func (c *Client) now() stream.Instant {
	if c == nil || c.principal == nil || c.trusted {
		return 0
	}
	return stream.Now()
}

// valid returns nil if the credentials of the client were valid less than checkInterval before now. An adapter that
// keeps a client, and forgets Call and OnEnd, thus has a client of no use soon after the credentials have ended.
func (c *Client) valid(now stream.Instant) error {
	if c.principal == nil || c.trusted || int64(now)-c.checked.Load() < int64(checkInterval) {
		return nil
	}
	err := c.Err()
	if err == nil {
		c.checked.Store(int64(now))
	}
	return err
}

// OnEnd calls end once, with the error of Err, when the credentials of the client end. end must not block.
// stop must be called when the connection or call has ended; end is not called after stop.
func (c *Client) OnEnd(end func(error)) (stop func()) {
	if c.entered() != nil || c.principal == nil || c.trusted {
		return func() {}
	}
	return c.gate.access.OnEnd(c.principal, end)
}

// Ticket returns a new ticket, with which Gate.Redeem returns the client once. Errors: PermissionDenied; FlowControl;
// Overloaded.
func (c *Client) Ticket() (string, error) {
	if err := c.entered(); err != nil {
		return "", err
	}
	if c.account == nil {
		return "", access.ErrUnknownClient
	}
	return c.gate.access.Ticket(c.principal, c.account)
}

// Principal returns the principal of the client, or the refused principal; nil where clients need no
// credentials, and for the owner.
func (c *Client) Principal() *access.Principal {
	switch {
	case c == nil:
		return nil
	case c.refused != nil:
		return c.refused
	}
	return c.principal
}

// Name returns the name of the client in logs, which programs get as the user of a request; "" = no name.
func (c *Client) Name() string {
	if p := c.Principal(); p != nil {
		return p.Name
	}
	return ""
}

// Account returns the account of the client; nil for the owner, and for a client that entered no gate.
func (c *Client) Account() *access.Account {
	if c == nil {
		return nil
	}
	return c.account
}

// Core returns the part of the account for frames.
func (c *Client) Core() *stream.Account { return c.Account().Core() }

// SameAs reports whether two clients have the same identity and the same rights.
func (c *Client) SameAs(other *Client) bool {
	return c.entered() == nil && other.entered() == nil && c.principal.Equal(other.principal)
}

// Known reports whether a gate has let the client in by its credentials, or clients need none. A nil
// client and the client of a call with role.Open are not known.
func (c *Client) Known() bool { return c.entered() == nil && !c.open }

// Charge charges a frame for a model to the account of the client. OneShot and Sequences call Charge.
// Errors: PermissionDenied; FlowControl, for the client's quotas.
func (c *Client) Charge(model string, f *stream.Frame) error {
	now := c.now()
	if err := c.models().mayAt(model, now); err != nil {
		return err
	}
	if c.owner {
		return nil
	}
	f.Account = c.Core()
	return f.Account.TakeFrame(f, now)
}

// Hold takes a place of the client's quotas.streams, for a call that opens several streams with OpenHeld.
// release gives the place back. Errors: FlowControl.
func (c *Client) Hold() (release func(), err error) {
	if err := c.entered(); err != nil {
		return nil, err
	}
	if err := c.Core().Hold(stream.QuotaStreams); err != nil {
		return nil, err
	}
	return func() { c.Core().Release(stream.QuotaStreams) }, nil
}

// OpenHeld is Open for a stream of a call that has called Hold. With opts.OneShot, the caller charges each
// frame with Charge.
func (c *Client) OpenHeld(model, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	if err := c.models().may(model); err != nil {
		return nil, err
	}
	if !opts.OneShot {
		opts.Account = c.Core()
	}
	return c.gate.backend.Open(model, version, opts, sink)
}

// Open implements Backend. The stream takes a place of the client's quotas.streams, and the client is
// charged for each frame.
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
	opts.Account, opts.Place, opts.OneShot = c.account.Core(), true, false
	s, err := c.gate.backend.Open(model, version, opts, sink)
	if err != nil {
		c.account.Release(stream.QuotaStreams)
	}
	return s, err
}

// RunFile implements FileBackend.
func (c *Client) RunFile(ctx context.Context, model, version string, f *stream.FileRun) error {
	if err := c.models().may(model); err != nil {
		return err
	}
	b, ok := c.gate.backend.(FileBackend)
	if !ok {
		return stream.Errorf(stream.Unsupported, "model", "%s takes no files", model)
	}
	return b.RunFile(ctx, model, version, f)
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

// models is the repository with the limits of a client.
type models Client

// all returns the repository of the server, or an error if the client entered no gate.
func (m *models) all() (Repository, error) { return m.allAt((*Client)(m).now()) }

func (m *models) allAt(now stream.Instant) (Repository, error) {
	switch err := (*Client)(m).entered(); {
	case err != nil:
		return nil, err
	case m.open:
		return nil, access.ErrUnknownClient
	}
	if err := (*Client)(m).valid(now); err != nil {
		return nil, err
	}
	return m.gate.backend.Models(), nil
}

// may returns nil if the client may use a model.
func (m *models) may(name string) error { return m.mayAt(name, (*Client)(m).now()) }

// mayAt is may at a time of Client.now.
func (m *models) mayAt(name string, now stream.Instant) error {
	if _, err := m.allAt(now); err != nil {
		return err
	}
	if m.program != "" && strings.HasPrefix(name, m.program+".") {
		return nil
	}
	return m.principal.AllowsModel(name)
}

// Model implements Repository. A call with role.Open may ask for a model, too: with auth.model_health: open,
// every client may ask whether a model is ready.
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
func (m *models) Config(name, version string) ([]byte, error) {
	if err := m.may(name); err != nil {
		return nil, err
	}
	return m.gate.backend.Models().Config(name, version)
}

// Statistics implements Repository.
func (m *models) Statistics(name, version string) ([]Statistics, error) {
	all, err := m.all()
	if err == nil && name != "" {
		err = m.principal.AllowsModel(name)
	}
	if err != nil {
		return nil, err
	}
	rows, err := all.Statistics(name, version)
	return slices.DeleteFunc(rows, func(s Statistics) bool { return m.principal.AllowsModel(s.Model) != nil }), err
}

// Index implements Repository.
func (m *models) Index() []Entry {
	all, err := m.all()
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all.Index(), func(e Entry) bool { return m.principal.AllowsModel(e.Name) != nil })
}

// Load implements Repository. The load counts in quotas.loads, and a new endpoint in quotas.endpoints.
func (m *models) Load(ctx context.Context, name string, how Load) (Loaded, error) {
	if err := m.may(name); err != nil {
		return Loaded{}, err
	}
	// params, config and files could name the files and steps of other models
	if m.principal.Limited() && (len(how.Params) > 0 || how.Config != nil || how.Files != nil) {
		return Loaded{}, stream.Errorf(stream.PermissionDenied, "parameters",
			"%s is limited to the models %s, and may load them only as they are configured", m.principal.Name,
			strings.Join(m.principal.Models, ", "))
	}
	if m.owner {
		return m.gate.backend.Models().Load(ctx, name, how)
	}
	if err := m.account.Take(stream.QuotaLoads, 1, 0); err != nil {
		return Loaded{}, err
	}
	how.Reserve = func(endpoint string, there bool) (func(there bool), error) {
		return m.account.Reserve(m.gate.backend.Models(), endpoint, there)
	}
	return m.gate.backend.Models().Load(ctx, name, how)
}

// Unload implements Repository.
func (m *models) Unload(ctx context.Context, endpoint string, how Unload) error {
	if err := m.may(endpoint); err != nil {
		return err
	}
	if m.principal.Limited() && how.Dependents {
		return stream.Errorf(stream.PermissionDenied, "unload_dependents",
			"%s is limited to the models %s, and these may be used by others", m.principal.Name,
			strings.Join(m.principal.Models, ", "))
	}
	if !m.owner {
		defer m.account.ForgetUnloaded(m.gate.backend.Models())
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
