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
	Routes          bool     `yaml:"routes" help:"serve the routes of InferenceServer below /api: tasks as zip files. data must be set"`
	PublicPostModel bool     `yaml:"public_post_model" advanced:"yes" help:"clients with the role manage post models at the public address, too. Otherwise, models are posted at management.address only"`
	Parameters      []string `yaml:"model_parameters" example:"container.memory=16GiB" advanced:"yes" help:"settings of posted models, as KEY=VALUE; container.gpus is for models with use_gpu, and is all unless set"`
	MaxModels       int      `yaml:"max_models" default:"100" min:"1" max:"1000" advanced:"yes" help:"most posted models"`
	MaxModel        int64    `yaml:"max_model" default:"4GiB" min:"1" unit:"bytes" advanced:"yes" help:"most bytes of the zip file for /model of a posted model"`
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
	pathModels  = "/api/models/"
	pathModel   = pathModels + ":model"
)

const tag = "InferenceServer"

func routes(o Options) []openapi.Route {
	output := openapi.Raw{MediaType: "application/zip", Doc: "the files of the result"}
	const states = "551: the task waits or runs; 552: the task has failed; 553: the result is missing; 554: there is " +
		"no such task"
	return []openapi.Route{
		{Method: "POST", Path: pathTasks, Role: role.Infer, Limited: true, Tag: tag,
			Summary: "Submit a task as a zip file, or with container_tag post a model as at /api/models/",
			Doc: "The field zip_file of the form has the files of the input. The answer is the uid of the task. 550: " +
				"there is no such model.",
			Query: []openapi.Param{
				{Name: "human_readable_id", Type: "string", Doc: "the model that runs the task"},
				{Name: "model_human_readable_id", Type: "string", Doc: "another name of human_readable_id"},
				{Name: "container_tag", Type: "string", Doc: "of a model: see /api/models/"},
			},
			Body: openapi.Raw{MediaType: "multipart/form-data", Doc: "the field zip_file"}, Answer: ""},
		{Method: "GET", Path: pathTask, Role: role.Infer, Limited: true, Tag: tag,
			Summary: "The result of a task as a zip file", Doc: states, Answer: output},
		{Method: "GET", Path: pathOutputs, Role: role.Infer, Limited: true, Tag: tag,
			Summary: "The result of a task as a zip file", Doc: states, Answer: output},
		{Method: "DELETE", Path: pathTask, Role: role.Infer, Limited: true, Audit: true, Tag: tag,
			Summary: "Delete a task that does not run, with its files", Answer: deleted{}},
		{Method: "GET", Path: pathModels, Role: role.Infer, Limited: true, Tag: tag, Summary: "The posted models",
			Answer: []model{}},
		{Method: "POST", Path: pathModels, Role: role.Manage, Public: o.PublicPostModel, Limited: true, Tag: tag,
			Summary: "Post a model: a container image, with a zip file for /model",
			Doc: "The image must be in containers.images. The model stays until it is deleted, also after " +
				"restarts.",
			Query: []openapi.Param{
				{Name: "container_tag", Type: "string", Doc: "the image"},
				{Name: "human_readable_id", Type: "string", Doc: "the name of the model"},
				{Name: "description", Type: "string", Doc: "for people"},
				{Name: "model_available", Type: "boolean", Doc: "the form has the field zip_file"},
				{Name: "use_gpu", Type: "boolean", Doc: "containers of the model get GPUs; default false"},
			},
			Body: openapi.Raw{MediaType: "multipart/form-data", Doc: "the field zip_file"}, Answer: model{}},
		{Method: "DELETE", Path: pathModel, Role: role.Manage, Public: o.PublicPostModel, Tag: tag,
			Summary: "Delete a posted model, with its zip file", Answer: model{}},
	}
}

// adapter has the routes.
type adapter struct {
	opts    Options
	http    *httpd.Server
	tasks   *tasks.Adapter
	models  *store
	log     *slog.Logger
	serving chan struct{}
	gate    *ingest.Gate    // valid once serving is closed
	ctx     context.Context // of Serve, valid once serving is closed
}

var (
	_ ingest.Interface = (*adapter)(nil)
	_ ingest.Starter   = (*adapter)(nil)
)

func newAdapter(o Options, e ingest.AdapterEnv) (ingest.Interface, error) {
	of, err := tasks.AdapterOf(e.Opened)
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, name+".routes", "%w", err)
	}
	a := &adapter{opts: o, http: e.HTTP, tasks: of, log: e.Log, serving: make(chan struct{})}
	if a.models, err = openStore(e, o, a.failed); err != nil {
		return nil, stream.Errorf(stream.Unavailable, "data", "%w", err)
	}
	a.http.AllowUploads(pathTasks)
	a.http.AllowUploads(pathModels)
	app := a.http.App
	app.Post(pathTasks, func(c *fiber.Ctx) error {
		if c.Context().QueryArgs().Has("container_tag") {
			return a.post(c)
		}
		return a.submit(c)
	})
	app.Get(pathOutputs, a.output)
	app.Get(pathTask, a.output)
	app.Delete(pathTask, a.delete)
	app.Get(pathModels, a.list)
	app.Post(pathModels, a.post)
	app.Delete(pathModel, a.remove)
	return a, nil
}

// Name implements ingest.Interface.
func (a *adapter) Name() string { return name }

// Serving implements ingest.Starter.
func (a *adapter) Serving() <-chan struct{} { return a.serving }

// Serve implements ingest.Interface.
func (a *adapter) Serve(ctx context.Context, gate *ingest.Gate) error {
	a.gate, a.ctx = gate, ctx
	close(a.serving)
	a.models.load(ctx, gate.Owner().Models(), a.failed)
	<-ctx.Done()
	return nil
}

// failed logs a stored model that cannot be used.
func (a *adapter) failed(of string, err error) {
	a.log.Error("a posted model cannot be loaded", "model", of, "error", err)
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
