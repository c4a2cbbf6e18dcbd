// Package inferenceserver serves the routes of the project InferenceServer (github.com/mathiser/inference_server):
// tasks as zip files, and models as container images with a zip file for /model.
//
// It owns the routes below /api and their statuses. It must not know how tasks are stored, nor how containers run.
package inferenceserver

import (
	"context"
	"log/slog"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/tasks"
	"millrace/internal/httpd"
	"millrace/internal/openapi"
	"millrace/internal/role"
	"millrace/stream"
)

// name is the name of the adapter and of the section of its settings.
const name = "inference_server"

// Options are the settings of the adapter.
type Options struct {
	Routes bool `yaml:"routes" help:"serve the routes of InferenceServer below /api: tasks as zip files. data must be set"`
}

func init() {
	ingest.RegisterAdapter(ingest.AdapterKind[Options]{
		Name: name, On: func(o Options) bool { return o.Routes }, Routes: routes, New: newAdapter,
	})
}

// Paths of the routes.
const (
	pathTasks   = "/api/tasks/"
	pathTask    = pathTasks + ":uid"
	pathOutputs = pathTasks + "outputs/:uid"
)

const tag = "InferenceServer"

func routes(Options) []openapi.Route {
	output := openapi.Raw{MediaType: "application/zip", Doc: "the files of the result"}
	const states = "551: the task waits or runs; 552: the task has failed; 553: the result is missing; 554: there is " +
		"no such task"
	return []openapi.Route{
		{Method: "POST", Path: pathTasks, Role: role.Infer, Limited: true, Tag: tag,
			Summary: "Submit a task as a zip file",
			Doc: "The field zip_file of the form has the files of the input. The answer is the uid of the task. 550: " +
				"there is no such model.",
			Query: []openapi.Param{
				{Name: "human_readable_id", Type: "string", Doc: "the model that runs the task"},
				{Name: "model_human_readable_id", Type: "string", Doc: "another name of human_readable_id"},
			},
			Body: openapi.Raw{MediaType: "multipart/form-data", Doc: "the field zip_file"}, Answer: ""},
		{Method: "GET", Path: pathTask, Role: role.Infer, Limited: true, Tag: tag,
			Summary: "The result of a task as a zip file", Doc: states, Answer: output},
		{Method: "GET", Path: pathOutputs, Role: role.Infer, Limited: true, Tag: tag,
			Summary: "The result of a task as a zip file", Doc: states, Answer: output},
		{Method: "DELETE", Path: pathTask, Role: role.Infer, Limited: true, Audit: true, Tag: tag,
			Summary: "Delete a task that does not run, with its files", Answer: deleted{}},
	}
}

// adapter has the routes.
type adapter struct {
	opts    Options
	http    *httpd.Server
	tasks   *tasks.Adapter
	log     *slog.Logger
	gate    *ingest.Gate // valid once serving is closed
	serving chan struct{}
}

var (
	_ ingest.Interface = (*adapter)(nil)
	_ ingest.Starter   = (*adapter)(nil)
)

func newAdapter(o Options, e ingest.AdapterEnv) (ingest.Interface, error) {
	of, err := tasks.Of(e.Opened)
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, name+".routes", "%w", err)
	}
	a := &adapter{opts: o, http: e.HTTP, tasks: of, log: e.Log, serving: make(chan struct{})}
	a.http.AllowUploads(pathTasks)
	app := a.http.App
	app.Post(pathTasks, a.submit)
	app.Get(pathOutputs, a.output)
	app.Get(pathTask, a.output)
	app.Delete(pathTask, a.delete)
	return a, nil
}

// Name implements ingest.Interface.
func (a *adapter) Name() string { return name }

// Serving implements ingest.Starter.
func (a *adapter) Serving() <-chan struct{} { return a.serving }

// Serve implements ingest.Interface.
func (a *adapter) Serve(ctx context.Context, gate *ingest.Gate) error {
	a.gate = gate
	close(a.serving)
	<-ctx.Done()
	return nil
}

// options reads the query: each option once. set returns false for an option that the route does not have.
func options(c *fiber.Ctx, set func(option, text string) (known bool, err error)) (err error) {
	seen := map[string]bool{}
	c.Context().QueryArgs().VisitAll(func(k, v []byte) {
		option, text := string(k), string(v)
		switch {
		case err != nil:
			return
		case seen[option]:
			err = stream.Errorf(stream.InvalidArgument, option, "is in the query twice")
			return
		case len(text) > maxText:
			err = stream.Errorf(stream.InvalidArgument, option, "is longer than %d bytes", maxText)
			return
		}
		seen[option] = true
		known := false
		if known, err = set(option, text); err == nil && !known {
			err = stream.Errorf(stream.InvalidArgument, option, "is no option of %s %s", c.Method(), c.Route().Path)
		}
	})
	return err
}

// maxText is the most bytes of an option.
const maxText = 2048
