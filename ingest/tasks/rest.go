package tasks

import (
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/internal/httpd"
	"millrace/stream"
	"millrace/tasks"
	"millrace/tasks/blob"
)

// root is the path below which all routes are.
const root = "/v2/tasks"

// maxWait is the longest wait of a request for a task.
const maxWait = 5 * time.Minute

func (a *Adapter) routes(app fiber.Router) {
	app.Post(root, a.submit)
	app.Get(root, a.list)
	app.Get(root+"/:id", a.show)
	app.Get(root+"/:id/result", a.result)
	app.Get(root+"/:id/logs", a.logs)
	app.Get(root+"/:id/events", a.events)
	app.Post(root+"/:id/cancel", a.transition((*tasks.Store).Cancel))
	app.Post(root+"/:id/retry", a.retry)
	app.Delete(root+"/:id", a.delete)
	a.uploadRoutes(app)
}

// find returns the task of a request. A task of another client does not exist.
func (a *Adapter) find(c *fiber.Ctx) (tasks.Task, error) {
	return a.Find(c, strings.Clone(c.Params("id")))
}

// Find returns a task that the client of a request may see. Errors: NotFound.
func (a *Adapter) Find(c *fiber.Ctx, id string) (tasks.Task, error) {
	by, err := a.client(c)
	if err != nil {
		return tasks.Task{}, err
	}
	t, err := a.opts.Data.Get(id)
	if err == nil && !canSee(by, &t) {
		return tasks.Task{}, tasks.Missing(id)
	}
	return t, err
}

// parseOptions reads the query; an option that set does not know is refused.
func parseOptions(c *fiber.Ctx, set func(name, text string) (known bool, err error)) (err error) {
	c.Context().QueryArgs().VisitAll(func(k, v []byte) {
		if err != nil {
			return
		}
		known := false
		if known, err = set(string(k), string(v)); err == nil && !known {
			err = stream.Errorf(stream.InvalidArgument, string(k), "is no option of %s", c.Route().Path)
		}
	})
	return err
}

// listReply is the answer of a list.
type listReply struct {
	Tasks []tasks.Task `json:"tasks"`
	Next  string       `json:"next,omitempty"` // after of the next page; "" = this is the last page
}

func (a *Adapter) list(c *fiber.Ctx) error {
	by, err := a.client(c)
	if err != nil {
		return err
	}
	q, text := tasks.Query{Limit: 100}, ""
	err = parseOptions(c, func(name, value string) (known bool, err error) {
		switch name {
		case "state":
			for s := range strings.SplitSeq(value, ",") {
				if !slices.Contains(tasks.States, tasks.State(s)) {
					return true, stream.Errorf(stream.InvalidArgument, name, "%.40q is no state: there are %v", s,
						tasks.States)
				}
				q.States = append(q.States, tasks.State(s))
			}
		case "model":
			q.Model = value
		case "text":
			if text = strings.ToLower(value); len(text) > maxText {
				err = stream.Errorf(stream.InvalidArgument, name, "is longer than %d bytes", maxText)
			}
		case "limit":
			q.Limit, err = parseNumber(name, value, 1, 1000)
		case "after":
			if q.After = value; tasks.CheckID(value) != nil {
				err = stream.Errorf(stream.InvalidArgument, name, "%.40q is no id of a task", value)
			}
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return err
	}
	q.Keep = func(t *tasks.Task) bool { return matchesText(t, text) && canSee(by, t) }
	found, next := a.opts.Data.List(q)
	return c.JSON(listReply{found, next})
}

// matchesText reports whether a text in lower case is in the id of a task, the name of the input, the name of the
// consumer, or the message of the error, in any letter case.
func matchesText(t *tasks.Task, text string) bool {
	if text == "" || strings.Contains(t.ID, text) {
		return true
	}
	for _, of := range []string{t.Input.Name, t.Consumer} {
		if strings.Contains(strings.ToLower(of), text) {
			return true
		}
	}
	return t.Error != nil && strings.Contains(strings.ToLower(t.Error.Message), text)
}

func (a *Adapter) show(c *fiber.Ctx) error {
	var wait time.Duration
	err := parseOptions(c, func(name, text string) (known bool, err error) {
		if name == "wait" {
			wait, err = parseDuration(name, text, 0, maxWait)
			return true, err
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	t, err := a.find(c)
	if err != nil || wait == 0 {
		return sendTask(c, t, err)
	}
	account := ingest.ClientOf(httpd.ClientOf(c)).Core()
	if err := account.Hold(stream.QuotaWatchers); err != nil {
		return err
	}
	defer account.Release(stream.QuotaWatchers)
	ctx, cancel := context.WithTimeout(a.http.Context(c, a.ctx), wait)
	defer cancel()
	for err == nil && !t.State.Ended() && ctx.Err() == nil {
		t, err = a.opts.Data.WaitEnd(ctx, t.ID)
	}
	return sendTask(c, t, err)
}

func sendTask(c *fiber.Ctx, t tasks.Task, err error) error {
	if err != nil {
		return err
	}
	c.Response().Header.SetContentType(fiber.MIMEApplicationJSON)
	return c.Send(t.AppendJSON(make([]byte, 0, 1024)))
}

func (a *Adapter) transition(to func(*tasks.Store, context.Context, string) (tasks.Task, error)) fiber.Handler {
	return func(c *fiber.Ctx) error {
		t, err := a.find(c)
		if err == nil {
			t, err = to(a.opts.Data.Store, c.UserContext(), t.ID)
		}
		return sendTask(c, t, err)
	}
}

// retry queues an ended task again. The quota of tasks counts the task again if the task is the client's own.
func (a *Adapter) retry(c *fiber.Ctx) error {
	t, err := a.find(c)
	if err == nil {
		err = a.ownerRefused(&t)
	}
	if err != nil {
		return err
	}
	var room func(tasks.Usage) error
	if by := ingest.ClientOf(httpd.ClientOf(c)); by.Principal() != nil && ownerOf(by) == t.Owner {
		room = func(u tasks.Usage) error { return by.Core().CheckRoom(stream.QuotaTasks, int64(u.Waiting)) }
	}
	t, err = a.opts.Data.Retry(c.UserContext(), t.ID, room)
	return sendTask(c, t, err)
}

func (a *Adapter) delete(c *fiber.Ctx) error {
	t, err := a.find(c)
	if err == nil {
		err = a.opts.Data.Delete(c.UserContext(), t.ID)
	}
	if err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}

// events sends each change of a task until the task has ended.
func (a *Adapter) events(c *fiber.Ctx) error {
	t, err := a.find(c)
	if err != nil {
		return err
	}
	account := ingest.ClientOf(httpd.ClientOf(c)).Core()
	if err := account.Hold(stream.QuotaWatchers); err != nil {
		return err
	}
	release := func() { account.Release(stream.QuotaWatchers) }
	c.Response().Header.SetContentType(httpd.EventStream)
	a.http.GoLive(c, a.ctx, a.run, "events", func(l *httpd.Live) {
		defer release()
		defer l.Heartbeat(15*time.Second, a.run)()
		for {
			text, _ := json.Marshal(t)
			if l.Event("task", text) != nil || t.State.Ended() {
				return
			}
			if t, err = a.opts.Data.Wait(l.Context(), t.ID); err != nil || l.Context().Err() != nil {
				return
			}
		}
	}, release)
	return nil
}

// result sends the result of a finished task, or a part of the result.
func (a *Adapter) result(c *fiber.Ctx) error {
	t, err := a.find(c)
	if err != nil {
		return err
	}
	r, err := a.opts.Data.Result(c.UserContext(), t)
	if err != nil {
		return err
	}
	return SendFile(c, ingest.ClientOf(httpd.ClientOf(c)), r, *t.Result)
}

// SendFile sends an input or a result, or the part that the client asks for, until the client's credentials end.
func SendFile(c *fiber.Ctx, by *ingest.Client, r blob.Reader, f tasks.File) error {
	h := &c.Response().Header
	h.SetContentType(f.Type)
	h.Set(fiber.HeaderETag, `"`+f.SHA256+`"`)
	if f.Head != "" {
		h.Set(headerLength, f.Head)
	}
	if f.Name != "" {
		h.Set(fiber.HeaderContentDisposition,
			mime.FormatMediaType("attachment", map[string]string{"filename": f.Name}))
	}
	from, to, ok := httpd.Part(c, r.Size())
	if !ok {
		_ = r.Close()
		return c.SendStatus(http.StatusRequestedRangeNotSatisfiable)
	}
	_, err := r.Seek(from, io.SeekStart)
	if checked, ok := r.(interface{ Check() error }); ok && err == nil {
		err = checked.Check() // before the head of the reply
	}
	if err != nil {
		_ = r.Close()
		return err
	}
	return Send(c, by, struct {
		io.Reader
		io.Closer
	}{io.LimitReader(r, to-from), r}, int(to-from))
}

// Send is httpd.Send until the client's credentials end.
func Send(c *fiber.Ctx, by *ingest.Client, r io.ReadCloser, size int) error {
	return httpd.Send(c, by.OnEnd, r, size)
}
