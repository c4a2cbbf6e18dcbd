package tasks

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/ingest"
	"millrace/ingest/frames"
	"millrace/internal/httpd"
	"millrace/stream"
	"millrace/tasks"
	"millrace/tasks/blob"
)

// headerLength is the header with the length of the JSON in front of binary tensors.
const headerLength = "Inference-Header-Content-Length"

// consumer returns the consumer of the tasks of loaded models.
func (a *Adapter) consumer(from tasks.Source) *tasks.Consumer {
	_, local := from.(*tasks.Data) // otherwise the end of a task sends the result
	return &tasks.Consumer{
		Source: from, Name: a.opts.Name, Slots: a.opts.Slots, Handler: a, Log: a.opts.Log,
		Models: readyModels{a.gate.Owner().Models()}, OnEnd: a.endAttempt, Overlap: local,
	}
}

// RunOptions says how Run runs tasks.
type RunOptions struct {
	Name  string        // of the consumer, for people
	Slots int           // tasks at once
	Drain time.Duration // tasks that run at the end may take this long
	Media Media
	OnEnd func(tasks.End) // called at the end of each attempt, by several goroutines; nil = nothing is called
	Log   *slog.Logger

	Tracer stream.TaskTracer // nil = no traces of tasks
}

// Run runs tasks of a source on the models behind a gate until ctx ends, and then ends as tasks.Consumer does.
func Run(ctx context.Context, h *httpd.Server, gate *ingest.Gate, from tasks.Source, w RunOptions) {
	a := &Adapter{opts: Options{Name: w.Name, Slots: w.Slots, Media: w.Media, Log: w.Log,
		Tracer: w.Tracer}, http: h, gate: gate}
	k := a.consumer(from)
	if w.OnEnd != nil {
		k.OnEnd = func(e tasks.End) {
			a.endAttempt(e)
			w.OnEnd(e)
		}
	}
	looking, stop := context.WithCancel(ctx)
	var look sync.WaitGroup
	look.Go(func() { pollModels(looking, from) })
	k.Run(ctx, w.Drain)
	stop()
	look.Wait()
}

// readyModels are the ready models of the server.
type readyModels struct{ all ingest.Repository }

// Serves implements tasks.Models.
func (m readyModels) Serves(model string) bool {
	_, ready, err := m.all.Model(model, "")
	return err == nil && ready
}

// Ready implements tasks.Models.
func (m readyModels) Ready() (names []string) {
	for _, e := range m.all.Index() {
		if !slices.Contains(names, e.Name) && m.Serves(e.Name) {
			names = append(names, e.Name)
		}
	}
	return names
}

var _ tasks.Handler = (*Adapter)(nil)

// Run implements tasks.Handler.
func (a *Adapter) Run(c tasks.Claim) (tasks.File, error) {
	t := c.Task()
	trace := a.beginAttempt(&t)
	in, err := c.Input()
	if err != nil {
		return tasks.File{}, err
	}
	defer func() { _ = in.Close() }()
	if m, _, err := a.gate.Owner().Models().Model(t.Model, t.Version); err == nil && m.Files {
		if t.Annotate != "" {
			return tasks.File{}, checkDrawable(m)
		}
		return a.runFile(c, in)
	}
	switch kindOf(&t) {
	case kindVideo:
		return a.runVideo(c, in, trace)
	case kindPictures:
		return a.runPictures(c, in, trace)
	}
	return a.runRequest(c, in, trace)
}

// The kinds of inputs, beside files for models that take files.
const (
	kindRequest  = "request"  // the body of a request to the infer route
	kindVideo    = "video"    // a video, or the address of a video
	kindPictures = "pictures" // a zip archive of pictures
)

// kindOf returns the kind of the input of a task: the kind of the submission, or by the media type.
func kindOf(t *tasks.Task) string {
	switch form := mediaType(t.Input.Type); {
	case t.Kind != "":
		return t.Kind
	case strings.HasPrefix(form, "video/") || form == addressType || form == "application/mp4":
		return kindVideo
	case form == "application/zip" || form == "application/x-zip-compressed":
		return kindPictures
	}
	return kindRequest
}

// mediaType returns a media type without parameters, in lower case.
func mediaType(text string) string {
	form, _, _ := strings.Cut(text, ";")
	return strings.ToLower(strings.TrimSpace(form))
}

// runRequest runs a task of a model that takes tensors: the input of the task is the body of a request to the infer
// route of the model, and the reply is the result.
func (a *Adapter) runRequest(c tasks.Claim, in blob.Reader, trace stream.TraceContext) (tasks.File, error) {
	t := c.Task()
	r := httpd.InternalRequest{Method: http.MethodPost, Path: inferPath(&t), Header: map[string]string{}, Body: in,
		Size: in.Size()}
	if t.Input.Type != "" {
		r.Header[fiber.HeaderContentType] = t.Input.Type
	}
	if t.Input.Head != "" {
		r.Header[headerLength] = t.Input.Head
	}
	if trace.Trace != (stream.TraceID{}) {
		r.Header["Traceparent"] = string(frames.AppendTraceparent(nil, &trace))
	}
	reply, release := a.http.Handle(c.Context(), r)
	defer release()
	if reply.StatusCode() != http.StatusOK {
		return tasks.File{}, errorOf(reply)
	}
	return storeResult(c, reply)
}

// inferPath returns the infer route of the model of a task.
func inferPath(t *tasks.Task) string {
	path := "/v2/models/" + url.PathEscape(t.Model)
	if t.Version != "" {
		path += "/versions/" + url.PathEscape(t.Version)
	}
	return path + "/infer"
}

// storeResult writes the body of a reply into the result of a task.
func storeResult(c tasks.Claim, reply *fasthttp.Response) (tasks.File, error) {
	out, err := c.Create()
	if err != nil {
		return tasks.File{}, err
	}
	defer out.Discard()
	if err := reply.BodyWriteTo(out); err != nil {
		return tasks.File{}, err
	}
	info, err := out.Commit()
	return tasks.File{Info: info, Type: string(reply.Header.ContentType()),
		Head: string(reply.Header.Peek(headerLength))}, err
}

// errorOf returns the error in a reply.
func errorOf(reply *fasthttp.Response) error {
	var e struct {
		Error string      `json:"error"`
		Code  stream.Code `json:"code"`
	}
	if err := json.Unmarshal(reply.Body(), &e); err != nil || e.Code == "" {
		return stream.Errorf(stream.Internal, "", "the model was answered with the status %d", reply.StatusCode())
	}
	return stream.Errorf(e.Code, "", "%s", e.Error)
}
