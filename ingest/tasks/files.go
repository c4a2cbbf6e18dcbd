package tasks

import (
	"fmt"
	"io"

	"millrace/stream"
	"millrace/tasks"
	"millrace/tasks/blob"
)

// runFile runs a task of a model that takes files: the model reads the input and writes the result, and neither is in
// memory as a whole.
func (a *Adapter) runFile(c tasks.Claim, in blob.Reader) (result tasks.File, err error) {
	t := c.Task()
	var out blob.Writer
	f := &stream.FileRun{
		ID: fmt.Sprintf("%s-%d", t.ID, t.Attempt), Name: t.Input.Name, Type: t.Input.Type,
		Size: in.Size(), Input: in, Log: c.Log(),
		Progress: func(done, total int64, unit string) {
			_ = c.Report(tasks.Progress{Done: done, Total: total, Unit: unit}) // the context says when the claim ends
		},
		Create: func(name, mediaType string) (w io.Writer, err error) {
			result.Name, result.Type = name, mediaType
			out, err = c.Create()
			return out, err
		},
	}
	err = a.gate.Owner().RunFile(c.Context(), t.Model, t.Version, f)
	if out == nil {
		if err == nil {
			err = stream.Errorf(stream.Internal, "", "model %s has ended without a result", t.Model)
		}
		return tasks.File{}, err
	}
	defer out.Discard()
	if err != nil {
		return tasks.File{}, err
	}
	result.Info, err = out.Commit()
	return result, err
}
