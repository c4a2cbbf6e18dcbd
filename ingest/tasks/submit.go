package tasks

import (
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/internal/httpd"
	"millrace/internal/role"
	"millrace/internal/webhook"
	"millrace/stream"
	"millrace/tasks"
	"millrace/tasks/blob"
)

// Bounds of a submission.
const (
	maxText      = 256 // bytes of a name, media type or idempotency key
	maxAddress   = 2048
	maxPriority  = 100
	maxAttempts  = 100
	maxRetention = 366 * 24 * time.Hour
)

// submit stores the body of a request as the input of a new task.
func (a *Adapter) submit(c *fiber.Ctx) error {
	by, err := a.client(c)
	if err != nil {
		return err
	}
	t, err := readSubmission(c, time.Now().UTC())
	if err != nil {
		return err
	}
	task, there, err := a.store(c, by, t, func(w io.Writer) error {
		_, err := a.http.Upload(c, a.opts.MaxInput, SettingMaxInput, w)
		return err
	})
	if err != nil {
		return err
	}
	c.Location(httpd.Relative(c, root+"/"+task.ID))
	if !there {
		c.Status(fiber.StatusCreated)
	}
	return sendTask(c, task, nil)
}

// store stores a task of a client with the input that data writes.
func (a *Adapter) store(c *fiber.Ctx, by *ingest.Client, t tasks.Task,
	data func(io.Writer) error) (task tasks.Task, there bool, err error) {
	if err := a.maySubmit(by, &t); err != nil {
		return tasks.Task{}, false, err
	}
	span := a.beginSubmission(c, by, &t)
	t.Owner = ownerOf(by)
	task, there, err = a.opts.Data.Submit(c.UserContext(), tasks.Submission{
		Task: t, Data: func(w blob.Writer) error { return data(w) },
		File:  kindOf(&t) == kindVideo && mediaType(t.Input.Type) != addressType,
		Admit: func(u tasks.Usage) error { return admit(by, u) },
	})
	if err == nil && !there {
		a.endSubmission(c, span, task.ID, task.Input.Size)
	}
	return task, there, err
}

// maySubmit refuses tasks that a client, or any client now, may not submit.
func (a *Adapter) maySubmit(by *ingest.Client, t *tasks.Task) error {
	if t.Webhook != nil && !a.opts.Webhooks {
		return stream.Errorf(stream.PermissionDenied, "webhook",
			"this server tells no webhooks of tasks: the setting tasks.webhooks turns webhooks on")
	}
	if a.ctx.Err() != nil {
		return stream.Errorf(stream.Draining, "",
			"the server is shutting down: submit the task to another server, or later")
	}
	if err := by.CheckRights(access.Need{Role: role.Infer, Model: t.Model}); err != nil {
		return err
	}
	if err := checkVideoKind(t); err != nil || t.Annotate == "" || !a.Consumes() {
		return err
	}
	if m, _, err := a.gate.Owner().Models().Model(t.Model, t.Version); err == nil {
		return checkDrawable(m)
	}
	return nil
}

// admit checks the quotas of a client with tasks of this usage. Clients without credentials share their tasks, and so
// have the bounds of the store only.
func admit(by *ingest.Client, u tasks.Usage) error {
	if by.Principal() == nil {
		return nil
	}
	if err := by.Core().CheckRoom(stream.QuotaTasks, int64(u.Waiting)); err != nil {
		return err
	}
	return by.Core().CheckRoom(stream.QuotaTaskBytes, u.Bytes)
}

// readSubmission reads the query and the headers of a submission.
func readSubmission(c *fiber.Ctx, now time.Time) (t tasks.Task, err error) {
	t.Key = strings.Clone(c.Get(headerKey))
	t.Input.Type = strings.Clone(c.Get(fiber.HeaderContentType))
	t.Input.Head = strings.Clone(c.Get(headerLength))
	for _, h := range []struct{ name, text string }{
		{headerKey, t.Key}, {fiber.HeaderContentType, t.Input.Type}, {headerLength, t.Input.Head},
	} {
		if len(h.text) > maxText {
			return t, stream.Errorf(stream.InvalidArgument, h.name, "is longer than %d bytes", maxText)
		}
	}
	return t, readOptions(c, &t, now)
}

// headerKey has the idempotency key of a submission.
const headerKey = "Idempotency-Key"

// readOptions reads the query of a submission, and checks the options together.
func readOptions(c *fiber.Ctx, t *tasks.Task, now time.Time) (err error) {
	c.Context().QueryArgs().VisitAll(func(k, v []byte) {
		if err == nil {
			err = setOption(t, string(k), string(v), now)
		}
	})
	if err == nil && len(t.Key) > maxText {
		err = stream.Errorf(stream.InvalidArgument, headerKey, "is longer than %d bytes", maxText)
	}
	if err == nil && t.Model == "" {
		err = stream.Errorf(stream.InvalidArgument, "model",
			"is missing: say which model runs the task, such as ?model=find")
	}
	if err == nil && !t.Expires.IsZero() && !t.Expires.After(t.NotBefore) {
		err = stream.Errorf(stream.InvalidArgument, "expires", "is not after not_before: the task could never run")
	}
	return err
}

// setOption sets one option of the query of a submission.
func setOption(t *tasks.Task, name, text string, now time.Time) (err error) {
	most := maxText
	if name == "webhook" {
		most = maxAddress
	}
	if len(text) > most {
		return stream.Errorf(stream.InvalidArgument, name, "is longer than %d bytes", most)
	}
	switch name {
	case "model":
		t.Model = text
	case "version":
		t.Version = text
	case "kind":
		if t.Kind = text; text != kindRequest && text != kindVideo && text != kindPictures {
			err = stream.Errorf(stream.InvalidArgument, name, "%.40q is no kind of input: there are request, video "+
				"and pictures", text)
		}
	case optionAnnotate:
		if t.Annotate = text; text != annotateMP4 {
			err = stream.Errorf(stream.InvalidArgument, name, "%.40q is no form of an annotated video: there is mp4",
				text)
		}
	case "name":
		t.Input.Name = text
	case "priority":
		t.Priority, err = parseNumber(name, text, -maxPriority, maxPriority)
	case "attempts":
		t.Attempts, err = parseNumber(name, text, 1, maxAttempts)
	case "not_before":
		t.NotBefore, err = parseTime(name, text, now)
	case "expires":
		t.Expires, err = parseTime(name, text, now)
	case "webhook":
		if err := webhook.Check(text); err != nil {
			return stream.Errorf(stream.InvalidArgument, name, "%w", err)
		}
		t.Webhook = &tasks.Webhook{URL: text, State: tasks.Waiting}
	case "retention":
		var d time.Duration
		d, err = parseDuration(name, text, time.Second, maxRetention)
		t.Retention = tasks.Seconds(d / time.Second)
	default:
		err = stream.Errorf(stream.InvalidArgument, name, "is no option of a task: there are model, version, kind, "+
			"annotate, name, priority, attempts, not_before, expires, retention and webhook")
	}
	return err
}

func parseNumber(name, text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, stream.Errorf(stream.InvalidArgument, name, "%q is no number from %d to %d", text, least, most)
	}
	return n, nil
}

func parseDuration(name, text string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		return 0, stream.Errorf(stream.InvalidArgument, name, "%q is no time from %v to %v, such as 10m", text, least,
			most)
	}
	return d, nil
}

// parseTime reads a time of day, or a duration from now.
func parseTime(name, text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		if at = at.UTC(); at.Year() < 1 || at.Year() > 9999 {
			return at, stream.Errorf(stream.InvalidArgument, name, "%q is not from year 1 to 9999 in UTC", text)
		}
		return at, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxRetention {
		return time.Time{}, stream.Errorf(stream.InvalidArgument, name,
			"%q is neither a time such as %s nor a duration from now such as 10m", text, now.Format(time.RFC3339))
	}
	return now.Add(d), nil
}
