package inferenceserver

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/internal/httpd"
	"millrace/internal/role"
	"millrace/stream"
)

// post makes a model of an image in containers.images, with the zip file of the form as /model.
func (a *adapter) post(c *fiber.Ctx) error {
	by, err := a.client(c)
	if err != nil {
		return err
	}
	m, available, err := readModel(c)
	if err != nil {
		return err
	}
	err = a.postModel(c, by, &m, available)
	if c.Route().Path == pathTasks { // the route is of tasks, too, which are not audited
		a.audit(c, by, m.Name, err)
	}
	if err != nil {
		return err
	}
	a.log.Info("a model was posted", "model", m.Name, "image", m.Image, "client", by.Name())
	return c.JSON(m)
}

func (a *adapter) postModel(c *fiber.Ctx, by *ingest.Client, m *model, available *bool) error {
	if err := by.CheckRights(access.Need{Role: role.Manage, Model: m.Name}); err != nil {
		return err
	}
	if err := a.mayPost(c); err != nil {
		return err
	}
	m.Files = c.Request().Header.ContentLength() != 0
	switch {
	case m.Files && available != nil && !*available:
		return stream.Errorf(stream.InvalidArgument, "model_available", "is false, and the request has a body")
	case !m.Files && available != nil && *available:
		return stream.Errorf(stream.InvalidArgument, field, "is missing: model_available is true")
	}
	settle, err := a.models.reserve(m)
	if err != nil {
		return err
	}
	return settle(a.makeModel(c, m))
}

// makeModel stores the zip file of a model, and loads the model.
func (a *adapter) makeModel(c *fiber.Ctx, m *model) error {
	if m.Files {
		if err := a.storeZip(c, a.models.zip(m.UID)); err != nil {
			return err
		}
	}
	_, err := a.gate.Owner().Models().Load(a.http.Context(c, a.ctx), m.Name, ingest.Load{})
	return ofPost(err)
}

func (a *adapter) storeZip(c *fiber.Ctx, file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(a.copyZip(c, a.opts.MaxModel, name+".max_model", f), f.Sync(), f.Close())
}

// mayPost returns an error at an address where models are not posted and deleted.
func (a *adapter) mayPost(c *fiber.Ctx) error {
	if a.opts.PublicPostModel || httpd.ToManagement(c) {
		return nil
	}
	return httpd.WithStatus(http.StatusMethodNotAllowed, stream.Errorf(stream.PermissionDenied, "",
		"models are posted and deleted at management.address only, unless %s.public_post_model is set", name))
}

// readModel reads the query of a post. available is nil without model_available.
func readModel(c *fiber.Ctx) (m model, available *bool, err error) {
	err = options(c, func(option, text string) (known bool, err error) {
		switch option {
		case "container_tag":
			m.Image = text
		case "human_readable_id":
			m.Name = text
		case "description":
			m.Description = text
		case "use_gpu":
			m.GPU, err = boolean(option, text)
		case "model_available":
			var is bool
			is, err = boolean(option, text)
			available = &is
		default:
			return false, nil
		}
		return true, err
	})
	for _, o := range []struct{ name, text string }{{"container_tag", m.Image}, {"human_readable_id", m.Name}} {
		if err == nil && o.text == "" {
			err = stream.Errorf(stream.InvalidArgument, o.name, "is missing")
		}
	}
	return m, available, err
}

// boolean reads the texts that Python programs send.
func boolean(option, text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true", "1", "yes", "on":
		return true, nil
	case "false", "0", "no", "off":
		return false, nil
	}
	return false, stream.Errorf(stream.InvalidArgument, option, "%.40q is neither true nor false", text)
}

// list answers the posted models that the client may use.
func (a *adapter) list(c *fiber.Ctx) error {
	by, err := a.client(c)
	if err == nil {
		err = options(c, func(string, string) (bool, error) { return false, nil })
	}
	if err != nil {
		return err
	}
	seen := []model{}
	for _, m := range a.models.list() {
		if by.CheckRights(access.Need{Role: role.Infer, Model: m.Name}) == nil {
			seen = append(seen, m)
		}
	}
	return c.JSON(seen)
}

// remove deletes a posted model.
func (a *adapter) remove(c *fiber.Ctx) error {
	by, err := a.client(c)
	if err == nil {
		err = a.mayPost(c)
	}
	if err != nil {
		return err
	}
	of, err := url.PathUnescape(c.Params("model"))
	if err != nil {
		of = c.Params("model")
	}
	m, err := a.models.remove(strings.Clone(of))
	if err != nil {
		return err
	}
	a.log.Info("a posted model was deleted", "model", m.Name, "client", by.Name())
	return c.JSON(m)
}

// audit writes a line of the audit log.
func (a *adapter) audit(c *fiber.Ctx, by *ingest.Client, of string, err error) {
	act := access.Act{By: by.Principal(), Protocol: "http", Verb: c.Method() + " " + pathTasks, Target: of, Err: err,
		Status: http.StatusOK}
	if err != nil {
		act.Status = httpd.StatusOf(err)
	}
	if tcp, ok := c.Context().RemoteAddr().(*net.TCPAddr); ok {
		at, _ := netip.AddrFromSlice(tcp.IP)
		act.Address = access.AddressText(at.Unmap())
	}
	a.gate.Audit(act)
}
