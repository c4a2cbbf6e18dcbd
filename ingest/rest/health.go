package rest

import (
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/inference"
	"millrace/internal/oip"
)

func sendJSON(c *fiber.Ctx, status int, body []byte) error {
	c.Status(status).Response().Header.SetContentType(fiber.MIMEApplicationJSON)
	return c.Send(body)
}

func sendFlag(c *fiber.Ctx, name string, is bool) error {
	status, value := fiber.StatusOK, "true"
	if !is {
		status, value = fiber.StatusServiceUnavailable, "false"
	}
	return sendJSON(c, status, []byte(`{"`+name+`":`+value+`}`))
}

// IsProbe reports whether path is a health route of the server or of a model.
func IsProbe(path string) bool {
	switch path {
	case "/v2/health/live", "/v2/health/ready", "/health/startup", "/health/live", "/health/ready":
		return true
	}
	rest, ok := strings.CutPrefix(path, "/v2/models/")
	if !ok {
		return false
	}
	at := strings.Split(rest, "/")
	switch len(at) {
	case 2:
		return at[1] == "ready"
	case 4:
		return at[1] == "versions" && at[3] == "ready"
	}
	return false
}

// state returns the backend's state, or a state that says that the server starts or ends.
func (a *Adapter) state() ingest.State {
	s := a.requests.Service()
	if s == nil {
		return ingest.State{}
	}
	st := s.gate.State()
	if a.requests.Closing() {
		st.Draining = true
	}
	if st.Started {
		a.started.Store(true)
	}
	return st
}

// live is true as long as the server can answer and no worker has failed for good.
func (a *Adapter) live(c *fiber.Ctx) error { return sendFlag(c, "live", !a.state().Failed) }

func (a *Adapter) ready(c *fiber.Ctx) error {
	st := a.state()
	return sendFlag(c, "ready", st.Ready && !st.Draining)
}

// startup is true once the server has loaded the models.
func (a *Adapter) startup(c *fiber.Ctx) error {
	a.state()
	return sendFlag(c, "started", a.started.Load())
}

func (a *Adapter) serverMetadata(c *fiber.Ctx) error {
	st := a.state()
	m := oip.ServerMetadata{Name: st.Name, Version: st.Version,
		Extensions: append(inference.Extensions(a.opts.SharedMemory != nil), "binary_tensor_data", "generate")}
	return sendJSON(c, fiber.StatusOK, oip.AppendServerMetadata(nil, &m))
}

func (a *Adapter) modelReady(c *fiber.Ctx) error {
	s, err := a.requests.Begin()
	if err != nil {
		return err
	}
	defer a.requests.End()
	m, is, err := inference.Find(s.models(c), pathValue(c, "model"), pathValue(c, "version"))
	if err != nil {
		return err
	}
	status, value := fiber.StatusOK, "true"
	if !is {
		status, value = fiber.StatusServiceUnavailable, "false"
	}
	body := append(oip.AppendString([]byte(`{"name":`), m.Name), `,"ready":`+value+`}`...)
	return sendJSON(c, status, body)
}

func (a *Adapter) modelMetadata(c *fiber.Ctx) error {
	s, err := a.requests.Begin()
	if err != nil {
		return err
	}
	defer a.requests.End()
	meta, err := inference.Metadata(s.models(c), pathValue(c, "model"), pathValue(c, "version"))
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, oip.AppendModelMetadata(nil, &meta))
}

// statistics answers with the statistics of one model or of all models.
func (a *Adapter) statistics(c *fiber.Ctx) error {
	s, err := a.requests.Begin()
	if err != nil {
		return err
	}
	defer a.requests.End()
	out, err := inference.Statistics(s.models(c), pathValue(c, "model"), pathValue(c, "version"))
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, inference.AppendMessage(nil, out.ProtoReflect()))
}

func (a *Adapter) modelConfig(c *fiber.Ctx) error {
	s, err := a.requests.Begin()
	if err != nil {
		return err
	}
	defer a.requests.End()
	name, version := pathValue(c, "model"), pathValue(c, "version")
	if _, _, err := inference.Find(s.models(c), name, version); err != nil {
		return err
	}
	config, err := s.models(c).Config(name, version)
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, config)
}
