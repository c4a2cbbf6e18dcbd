package apps

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/stream"
	"millrace/stream/buf"
)

// Style describes the routes, replies and errors that all programs written for one system (stream.App.Style) share,
// besides the routes that each program declares. Options.Styles lists the styles. The functions may be nil, and are
// called concurrently.
type Style struct {
	Name string
	// Root are the paths at which a program that is served alone answers in place of the
	// server, by its routes or Serve: "/", "/docs" and others. At all other paths the server's
	// own routes come first.
	Root []string
	// Serve answers a request to a path at which the program declares no route. It returns
	// false when there is nothing.
	Serve func(x *Exchange) (bool, error)
	// Starting is Serve for a program that is not loaded yet or cannot be reached; err has the reason. When the
	// program's style is unknown, Starting of every style is tried, in the order of the styles' names.
	Starting func(x *Exchange, err error) (bool, error)
	// Begin may refuse a request to a declared route, before its body is read.
	Begin func(x *Exchange) error
	// Limit returns the longest time of a request, after which it fails with Timeout; 0 = none.
	Limit func(x *Exchange) time.Duration
	// MaxBody returns the most bytes of a request's body; 0 = the server's bound.
	MaxBody func(x *Exchange) int
	// Body may answer a request to a declared route in place of the program, by what its body
	// is; nil = the program does.
	Body func(x *Exchange, body []byte) *Answer
	// Answer may change the reply before it is sent, or its header before the first event.
	Answer func(x *Exchange, a *Answer)
	// Fail returns the reply to a request that failed with err; nil = the server's. For a
	// route of events it is called when nothing has been sent yet.
	Fail func(x *Exchange, err error) *Answer
	// Event returns the name and data of the event that ends the answers of a request that
	// failed with err; a nil Event = the server's.
	Event func(x *Exchange, err error) (name string, data []byte)
	// Forms says that a client chooses by Accept whether a route answers with JSON or events.
	Forms bool
	// Eager says that Event is used for what the program says also before the first event.
	Eager bool
	// End returns the name and data of the event behind the last answer; nil = there is none.
	End func(x *Exchange) (name string, data []byte)
	// Ended is told of the end of each request to a declared route: the status of its reply, and
	// its error or nil.
	Ended func(x *Exchange, status int, err error)
	// InProgram returns the time for which the program has run a request that was answered.
	InProgram func(c *fiber.Ctx) (took time.Duration, ok bool)
	// Access is how clients of a program at the root prove who they are.
	Access Access
}

// Access changes the rules of credentials for a server with a program of a style at the root.
type Access struct {
	// Open are paths of the server's own routes that need no credentials.
	Open []string
	// KeyInQuery says that the key of a client may be in the query, where proxies and histories keep it.
	KeyInQuery bool
	// Refused returns the status and the text of the reply to a request without valid credentials. passwords says
	// that clients can log in with a password only. nil = the server's reply.
	Refused func(passwords bool) (status int, detail string)
}

// Answer is a reply that a style makes or changes.
type Answer struct {
	Status      int
	ContentType string
	Header      map[string]string // to be added
	Cookies     []string          // values of Set-Cookie, to be added
	Body        []byte            // Answer may replace it, and must not write to it
	Memory      *buf.Buf          // of a Body that Answer has made; released when it is sent
}

// byName returns the styles by their names, with the one of the server's own programs.
func byName(styles []*Style) map[string]*Style {
	out := map[string]*Style{millraceStyle.Name: millraceStyle}
	for _, s := range styles {
		if _, twice := out[s.Name]; twice {
			panic("apps: there are two styles " + s.Name)
		}
		out[s.Name] = s
	}
	return out
}

// Exchange is one request to a program.
type Exchange struct {
	Ctx     *fiber.Ctx // nil once events are sent
	Program *Program
	AtRoot  bool          // the request came to the root, not to /apps/NAME/
	Path    string        // relative to where the program is served, unescaped; begins with a slash
	Route   *stream.Route // nil = none is declared at the path
	Began   time.Time
	Result  *stream.Result // of the request, to be read only; nil = it has reached no model

	atOwn  bool // see own; set when Ctx becomes nil
	a      *Adapter
	s      *service
	client *ingest.Client
	style  *Style
}

// StageCounter is a State that counts the runs of the program's stages.
type StageCounter interface {
	// CountRun counts a batch: its rows, the time to gather the rows, and the time of the run.
	CountRun(stage string, rows int, gathered, took time.Duration)
}

// State returns what a style keeps for a program. make is called once for each.
func (x *Exchange) State(make func() any) any {
	x.a.statesMu.Lock()
	defer x.a.statesMu.Unlock()
	s, ok := x.a.states[x.Program.Name]
	if !ok {
		s = make()
		x.a.states[x.Program.Name] = s
	}
	return s
}

// Backend returns the server's models and memory; nil before the adapter serves.
func (x *Exchange) Backend() ingest.Backend {
	if x.s == nil {
		return nil
	}
	return x.s.backend
}

// Draining reports whether the server ends.
func (x *Exchange) Draining() bool { return x.a.draining() }

// Configured reports whether the configuration gives that style to the program, which is at the root.
func (x *Exchange) Configured(style string) bool {
	return x.a.opts.Style == style && x.Program.Name == x.a.opts.Root
}

// Serve answers the request anew, as the program is now.
func (x *Exchange) Serve() error { return x.a.serve(x.Ctx, x.Program.Name, x.Path, x.AtRoot) }

// Refused counts the request as refused because of err before it had a model.
func (x *Exchange) Refused(err error) { x.a.noModel.Refuse("", err) }

// AwaitReady waits until the program is ready, for a time at most and as long as the client
// does, and reports whether it is.
func (x *Exchange) AwaitReady(limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(x.a.http.Context(x.Ctx, x.a.base), limit)
	defer cancel()
	return x.a.awaitReady(ctx, x.Program.Name)
}
