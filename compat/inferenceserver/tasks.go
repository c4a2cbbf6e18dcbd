package inferenceserver

import (
	"archive/zip"
	"bytes"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/tasks"
	"millrace/internal/httpd"
	"millrace/internal/role"
	"millrace/stream"
	durable "millrace/tasks"
)

// The statuses of tasks.
const (
	statusNoModel  = 550
	statusPending  = 551
	statusFailed   = 552
	statusNoOutput = 553
	statusNoTask   = 554
)

const mediaZip = "application/zip"

// client returns the client of a request, and an error until Serve is called.
func (a *adapter) client(c *fiber.Ctx) (*ingest.Client, error) {
	select {
	case <-a.serving:
		return ingest.ClientOf(httpd.ClientOf(c)), nil
	default:
		return nil, stream.Errorf(stream.Unavailable, "", "the server is starting: try again")
	}
}

// submit stores a zip file as the input of a new task, and answers the uid.
func (a *adapter) submit(c *fiber.Ctx) error {
	by, err := a.client(c)
	if err != nil {
		return err
	}
	t := durable.Task{Input: durable.File{Name: "input.zip", Type: mediaZip}}
	err = options(c, func(option, text string) (bool, error) {
		if option != "human_readable_id" && option != "model_human_readable_id" {
			return false, nil
		}
		if t.Model != "" && t.Model != text {
			return true, stream.Errorf(stream.InvalidArgument, option, "and the other name of the option differ")
		}
		t.Model = text
		return true, nil
	})
	if err != nil {
		return err
	}
	if t.Model == "" {
		return stream.Errorf(stream.InvalidArgument, "human_readable_id",
			"is missing: name the model that runs the task")
	}
	if err := by.CheckRights(access.Need{Role: role.Infer, Model: t.Model}); err != nil {
		return err
	}
	if err := a.known(t.Model); err != nil {
		return err
	}
	task, err := a.tasks.Submit(c, t, func(w io.Writer) error {
		if c.Request().Header.ContentLength() == 0 { // a task without files
			return zip.NewWriter(w).Close()
		}
		return a.copyZip(c, a.tasks.MaxInput(), tasks.SettingMaxInput, w)
	})
	if err != nil {
		return err
	}
	return c.JSON(task.ID)
}

// known returns an error for a model that the server does not know, loaded or not. A server without a consumer of its
// own need not know the models of tasks.
func (a *adapter) known(model string) error {
	if !a.tasks.Consumes() || slices.ContainsFunc(a.gate.Owner().Models().Index(), func(e ingest.Entry) bool {
		return e.Name == model
	}) {
		return nil
	}
	return httpd.WithStatus(statusNoModel, stream.Errorf(stream.NotFound, "human_readable_id",
		"there is no model %.128q", model))
}

// output sends the result of a task as a zip file, or answers with the status of the task.
func (a *adapter) output(c *fiber.Ctx) error {
	if err := options(c, func(string, string) (bool, error) { return false, nil }); err != nil {
		return err
	}
	t, err := a.find(c)
	if err != nil {
		return err
	}
	switch {
	case !t.State.Ended():
		return httpd.WithStatus(statusPending, stream.Errorf(stream.Conflict, "", "the task is %s: ask again later",
			t.State))
	case t.State != durable.Finished:
		reason := ""
		if t.Error != nil {
			reason = ": " + t.Error.Message
		}
		return httpd.WithStatus(statusFailed, stream.Errorf(stream.Conflict, "", "the task is %s%s", t.State, reason))
	}
	r, err := a.tasks.Result(c, t)
	if stream.CodeOf(err) == stream.NotFound {
		err = httpd.WithStatus(statusNoOutput, stream.Errorf(stream.NotFound, "",
			"the task has finished, and its result is missing"))
	}
	if err != nil {
		return err
	}
	by := ingest.ClientOf(httpd.ClientOf(c))
	if kind, _, _ := mime.ParseMediaType(t.Result.Type); kind == mediaZip {
		return tasks.SendFile(c, by, r, *t.Result)
	}
	c.Response().Header.SetContentType(mediaZip)
	c.Set(fiber.HeaderContentDisposition, `attachment; filename=output.zip`)
	return tasks.Send(c, by, newZipOf(t.Result.Name, r), -1)
}

// find returns the task of a request.
func (a *adapter) find(c *fiber.Ctx) (durable.Task, error) {
	if _, err := a.client(c); err != nil {
		return durable.Task{}, err
	}
	t, err := a.tasks.Find(c, strings.Clone(c.Params("uid")))
	if stream.CodeOf(err) == stream.NotFound {
		err = httpd.WithStatus(statusNoTask, err)
	}
	return t, err
}

// deleted is the answer to the deletion of a task.
type deleted struct {
	UID     string `json:"uid"`
	Deleted bool   `json:"is_deleted"`
}

// delete deletes a task that does not run.
func (a *adapter) delete(c *fiber.Ctx) error {
	t, err := a.find(c)
	if err == nil {
		err = a.tasks.Delete(c, t)
	}
	if err != nil {
		return err
	}
	return c.Status(http.StatusOK).JSON(deleted{t.ID, true})
}

// zipOf reads as a zip file with one file. Neither is in memory as a whole.
type zipOf struct {
	io.Closer
	from  io.Reader
	zip   *zip.Writer
	entry io.Writer
	ready bytes.Buffer // what was not read so far
	piece []byte
	ended bool
}

// newZipOf returns the zip file of a file. Close closes the file.
func newZipOf(name string, file io.ReadCloser) *zipOf {
	z := &zipOf{Closer: file, from: file, piece: make([]byte, 64<<10)}
	z.zip = zip.NewWriter(&z.ready)
	if name == "" {
		name = "output"
	}
	z.entry, _ = z.zip.Create(name) // into memory
	return z
}

// Read implements io.Reader.
func (z *zipOf) Read(b []byte) (int, error) {
	for z.ready.Len() == 0 && !z.ended {
		n, err := z.from.Read(z.piece)
		if _, err := z.entry.Write(z.piece[:n]); err != nil {
			return 0, err
		}
		if err == io.EOF {
			z.ended, err = true, z.zip.Close()
		} else if err == nil {
			err = z.zip.Flush()
		}
		if err != nil {
			return 0, err
		}
	}
	return z.ready.Read(b)
}
