package tasks

import (
	"errors"
	"io"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/tasks"
	"millrace/tasks/blob"
)

// SettingMaxInput is the setting of MaxInput, for errors.
const SettingMaxInput = "tasks.max_input"

// MaxInput returns the most bytes of an input.
func (a *Adapter) MaxInput() int64 { return a.opts.MaxInput }

// Consumes reports whether the server runs tasks of its own models. Otherwise, the server need not know the models of
// tasks.
func (a *Adapter) Consumes() bool { return a.opts.Slots > 0 }

// Submit stores a task of the client of a request, for an adapter with other routes of tasks. data writes the input.
// Of t, Model, Version, Input.Name and Input.Type are set. Errors: as of POST /v2/tasks.
func (a *Adapter) Submit(c *fiber.Ctx, t tasks.Task, data func(io.Writer) error) (tasks.Task, error) {
	by, err := a.client(c)
	if err != nil {
		return tasks.Task{}, err
	}
	task, _, err := a.store(c, by, t, data)
	return task, err
}

// Result opens the result of a task of Find. Errors: Conflict for a task without a result; NotFound when the file is
// missing.
func (a *Adapter) Result(c *fiber.Ctx, t tasks.Task) (blob.Reader, error) {
	return a.opts.Data.Result(c.UserContext(), t)
}

// Delete deletes a task of Find with its files. Errors: NotFound; Conflict, while the task runs.
func (a *Adapter) Delete(c *fiber.Ctx, t tasks.Task) error {
	return a.opts.Data.Delete(c.UserContext(), t.ID)
}

// AdapterOf returns the adapter of tasks among opened adapters (ingest.AdapterEnv.Opened). Errors: the server has no
// tasks.
func AdapterOf(opened func(name string) ingest.Interface) (*Adapter, error) {
	a, ok := opened("tasks").(*Adapter)
	if !ok {
		return nil, errors.New("the server keeps no tasks: set data, the folder of tasks")
	}
	return a, nil
}
