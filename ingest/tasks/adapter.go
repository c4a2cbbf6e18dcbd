package tasks

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/frames"
	"millrace/ingest/sources"
	"millrace/internal/httpd"
	"millrace/internal/role"
	"millrace/internal/routines"
	"millrace/internal/webhook"
	"millrace/stream"
	"millrace/tasks"
)

// Options configure the adapter. Zero fields take their defaults.
type Options struct {
	Data      *tasks.Data
	MaxInput  int64         // bytes of an input; default 1 GiB
	Slots     int           // tasks of the server's models that run at once; 0 = none
	Share     float64       // of the time of a task with frames while live frames arrive; default 1: all
	MaxResult int64         // bytes of a result of a consumer on another host; default 64 GiB
	Name      string        // of the consumer, for people
	Drain     time.Duration // tasks that run may take this long at the shutdown
	Log       *slog.Logger
	Media     Media
	Tracer    stream.TaskTracer // nil = no traces of tasks

	Webhooks      bool   // a submission may name a webhook
	WebhookSecret string // key of the signature of messages to webhooks; "" = no signature
}

// Adapter has the routes of tasks.
type Adapter struct {
	opts    Options
	http    *httpd.Server
	gate    *ingest.Gate
	ctx     context.Context
	serving chan struct{}
	tasks   *routines.Group

	contexts frames.Contexts
	claims   *claims
	attempts attempts
}

var (
	_ ingest.Interface = (*Adapter)(nil)
	_ ingest.Measured  = (*Adapter)(nil)
)

// New returns the adapter and registers its routes, which answer 503 until Serve is called.
func New(h *httpd.Server, o Options) *Adapter {
	o.MaxInput = cmp.Or(o.MaxInput, 1<<30)
	o.MaxResult = cmp.Or(o.MaxResult, 64<<30)
	o.Name = cmp.Or(o.Name, "server")
	o.Share = cmp.Or(o.Share, 1)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	a := &Adapter{opts: o, http: h, serving: make(chan struct{}), contexts: frames.Contexts{Log: o.Log}}
	a.tasks = routines.New(func(name string, p any, stack []byte) {
		o.Log.Error("a goroutine of the tasks panicked", "name", name, "panic", p, "stack", string(stack))
	})
	a.claims = newClaims(a)
	h.AllowUploads(root)
	h.AllowUploads(claimsRoot + "/*/*/result")
	h.AllowUploads(uploadsRoot + "/*")
	a.routes(h.App)
	a.claims.routes(h.App)
	return a
}

// Name implements ingest.Interface.
func (a *Adapter) Name() string { return "tasks" }

// Metrics implements ingest.Measured.
func (a *Adapter) Metrics() ingest.Metrics {
	st := a.opts.Data.Stats()
	m := ingest.Metrics{
		Tasks: map[string]int{}, TaskBytes: st.Bytes, TasksEnded: map[string]uint64{}, TaskAttempts: st.Attempts,
		TaskClaims:  a.claims.counts(),
		TasksQueued: map[string]uint64{"submitted": st.Submitted, "found": st.Found, "retried": st.Retried},
		Goroutines:  map[string]int{}, Contexts: a.contexts.Broken(),
	}
	for _, n := range a.tasks.Counts() {
		m.Goroutines["tasks"] += n
	}
	for _, state := range tasks.States {
		m.Tasks[string(state)] = st.Stored[state]
		if state.Ended() {
			m.TasksEnded[string(state)] = st.Ended[state]
		}
	}
	m.TasksEnded[string(tasks.Deleted)] = st.Ended[tasks.Deleted]
	return m
}

// modelPollInterval is the time between two looks at the loaded models by a consumer without a task.
const modelPollInterval = time.Second

// Serve runs the tasks of the server's models until ctx ends.
func (a *Adapter) Serve(ctx context.Context, gate *ingest.Gate) error {
	a.gate, a.ctx = gate, ctx
	close(a.serving)
	known := map[string]*owner{}
	if gate.Required() { // before a task begins
		known = a.checkOwners(ctx, known, a.grace(), time.Now())
	}
	a.run("due", func() { a.opts.Data.Run(ctx) })
	a.run("uploads", func() { a.opts.Data.RunUploads(ctx) })
	if gate.Required() {
		a.run("owners", func() { a.endRefused(ctx, known) })
	}
	if a.opts.Webhooks {
		a.run("webhooks", func() { a.notifyWebhooks(ctx) })
	}
	if a.opts.Slots > 0 {
		a.run("consumer", func() { a.consumer(a.opts.Data).Run(ctx, a.opts.Drain) })
		a.run("models", func() { pollModels(ctx, a.opts.Data) })
	}
	<-ctx.Done()
	a.tasks.Stop()
	a.tasks.Wait()
	return a.Close()
}

// Close closes the data folder. Serve does so at its end.
func (a *Adapter) Close() error {
	a.opts.Data.Close()
	return nil
}

// Serving is closed once Serve has opened the routes.
func (a *Adapter) Serving() <-chan struct{} { return a.serving }

// run starts a goroutine, unless the shutdown has begun.
func (a *Adapter) run(name string, f func()) bool { return a.tasks.Go(name, f, nil) }

// pollModels lets the consumer of a source look at the loaded models again and again.
func pollModels(ctx context.Context, from tasks.Source) {
	every := time.NewTicker(modelPollInterval)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			from.ModelsChanged()
		}
	}
}

// errPrivate is the error of a webhook at an address that webhooks may not have.
var errPrivate = errors.New("the receiver has a private address, which sources.allow_private would allow")

// notifyWebhooks posts ended tasks to their webhooks until ctx ends.
func (a *Adapter) notifyWebhooks(ctx context.Context) {
	allow := sources.Public
	if a.opts.Media.AllowPrivate {
		allow = nil
	}
	to := webhook.New(16, allow)
	defer to.Close()
	a.opts.Data.PostWebhooks(ctx, func(ctx context.Context, id string, t tasks.Task) (again bool, err error) {
		again, err = to.Post(ctx, t.Webhook.URL, webhook.Message{ID: id, Secret: a.opts.WebhookSecret,
			Body: t.WebhookBody()})
		switch {
		case errors.Is(err, webhook.ErrRefused): // the text would have the address behind the name
			again, err = false, errPrivate
		case err != nil:
			err = webhook.Reason(err)
		}
		if err != nil {
			a.opts.Log.Debug("the webhook of a task fails", "task", t.ID, "receiver", webhook.Host(t.Webhook.URL),
				"again", again, "error", err)
		}
		return again, err
	})
}

// client returns the client of a request, and an error until Serve is called.
func (a *Adapter) client(c *fiber.Ctx) (*ingest.Client, error) {
	select {
	case <-a.serving:
		return ingest.ClientOf(httpd.ClientOf(c)), nil
	default:
		return nil, stream.Errorf(stream.Unavailable, "", "the server is starting: try again")
	}
}

// ownerOf returns the name under which tasks of a client are stored; "" where clients need no credentials.
func ownerOf(c *ingest.Client) string {
	if p := c.Principal(); p != nil {
		return p.Key
	}
	return ""
}

// canSee reports whether a client may see a task: the client's own tasks, and with the role manage all tasks of the
// client's models.
func canSee(c *ingest.Client, t *tasks.Task) bool {
	if t.Owner == ownerOf(c) {
		return c.Known()
	}
	return c.CheckRights(access.Need{Role: role.Manage, Model: t.Model}) == nil
}
