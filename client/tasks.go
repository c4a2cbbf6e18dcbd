package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"millrace/stream"
)

// TaskRequest is a new task: an inference whose answer is kept by the server.
type TaskRequest struct {
	Model, Version string
	Body           io.Reader // the body of a request to the infer route of the model
	Size           int64     // bytes of Body; negative = unknown
	Kind           string    // request, video or pictures (a zip archive); "" = by the media type
	Annotate       string    // mp4: the result of a video is the annotated video; "" = JSON lines
	Type           string    // media type of Body, for example image/jpeg; "" = JSON
	HeaderLength   int       // bytes of JSON in front of binary tensors; 0 = no binary tensors
	Key            string    // idempotency key: a repeated request returns the first task; "" = no key
	Name           string    // for people
	Priority       int       // -100 to 100: tasks with a higher number begin first
	Attempts       int       // 0 = 3
	NotBefore      string    // earliest begin: RFC 3339, or a duration from now; "" = now
	Expires        string    // likewise: a task that has not begun expires; "" = never
	Retention      time.Duration
	Webhook        string // address that gets the ended task by POST; the server needs tasks.webhooks: on
}

// Task is the state of a task.
type Task struct {
	ID          string       `json:"id"`
	Model       string       `json:"model"`
	Version     string       `json:"version,omitempty"`
	Owner       string       `json:"owner,omitempty"`
	Priority    int          `json:"priority,omitempty"`
	State       string       `json:"state"`                 // queued, running, finished, failed, cancelled or expired
	Traceparent string       `json:"traceparent,omitempty"` // 00-TRACE-SPAN-FLAGS, of the submission
	Attempt     int          `json:"attempt"`
	LastAttempt int          `json:"last_attempt"`
	Consumer    string       `json:"consumer,omitempty"` // runs the task
	Created     time.Time    `json:"created"`
	NotBefore   time.Time    `json:"not_before,omitzero"`
	Expires     time.Time    `json:"expires,omitzero"`
	Started     time.Time    `json:"started,omitzero"`
	Ended       time.Time    `json:"ended,omitzero"`
	Input       TaskFile     `json:"input"`
	Result      *TaskFile    `json:"result,omitempty"`
	Progress    TaskProgress `json:"progress,omitzero"`   // of the newest attempt
	Error       *TaskFailure `json:"error,omitempty"`     // of the newest failed attempt
	LogBytes    int64        `json:"log_bytes,omitempty"` // of the kept logs, at the end of the newest attempt
}

// Over reports whether the task has ended.
func (t *Task) Over() bool { return t.State != "queued" && t.State != "running" }

// TaskFile describes the input or the result of a task.
type TaskFile struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Type   string `json:"type,omitempty"`
	Name   string `json:"name,omitempty"`
}

// TaskProgress is how far an attempt is.
type TaskProgress struct {
	Done  int64  `json:"done"`
	Total int64  `json:"total,omitempty"` // 0 = unknown
	Unit  string `json:"unit,omitempty"`  // of both numbers, such as frames
}

// TaskFailure is the reason of a failed attempt.
type TaskFailure struct {
	Code    stream.Code `json:"code"`
	Message string      `json:"message"`
}

// query returns the options of a submission.
func (r *TaskRequest) query() url.Values {
	q := url.Values{}
	for k, v := range map[string]string{
		"model": r.Model, "version": r.Version, "name": r.Name, "not_before": r.NotBefore, "expires": r.Expires,
		"kind": r.Kind, "annotate": r.Annotate, "webhook": r.Webhook,
	} {
		if v != "" {
			q.Set(k, v)
		}
	}
	for k, v := range map[string]int{"priority": r.Priority, "attempts": r.Attempts} {
		if v != 0 {
			q.Set(k, strconv.Itoa(v))
		}
	}
	if r.Retention != 0 {
		q.Set("retention", r.Retention.String())
	}
	return q
}

// SubmitTask submits a task, which is stored when SubmitTask returns.
func (c *Client) SubmitTask(ctx context.Context, r TaskRequest) (t Task, err error) {
	if r.Model == "" {
		return t, errNoModel()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url(r.query(), "v2", "tasks").String(), r.Body)
	if err != nil {
		return t, stream.Errorf(stream.InvalidArgument, "", "%w", err)
	}
	req.ContentLength = max(-1, r.Size)
	if r.Size == 0 {
		req.Body = http.NoBody
	}
	req.Header.Set("Content-Type", "application/json")
	if r.Type != "" {
		req.Header.Set("Content-Type", r.Type)
	}
	if r.HeaderLength > 0 {
		req.Header.Set("Inference-Header-Content-Length", strconv.Itoa(r.HeaderLength))
	}
	if r.Key != "" {
		req.Header.Set("Idempotency-Key", r.Key)
	}
	resp, err := c.begin(req)
	if err != nil {
		return t, err
	}
	reply, err := c.finish(resp)
	if err != nil {
		return t, err
	}
	return t, badReply(json.Unmarshal(reply.body, &t))
}

// Task returns the state of a task.
func (c *Client) Task(ctx context.Context, id string) (Task, error) {
	return c.task(ctx, http.MethodGet, id, "", nil)
}

// TaskWithin returns the state of a task when the task has ended, at the latest after a time of up to 5 minutes.
func (c *Client) TaskWithin(ctx context.Context, id string, wait time.Duration) (Task, error) {
	return c.task(ctx, http.MethodGet, id, "", url.Values{"wait": {wait.String()}})
}

// WaitTask returns the state of a task after the task has ended.
func (c *Client) WaitTask(ctx context.Context, id string) (t Task, err error) {
	for err == nil && (t.ID == "" || !t.Over()) {
		t, err = c.TaskWithin(ctx, id, time.Minute)
	}
	return t, err
}

// CancelTask cancels a task that has not ended.
func (c *Client) CancelTask(ctx context.Context, id string) (Task, error) {
	return c.task(ctx, http.MethodPost, id, "cancel", nil)
}

// RetryTask queues a task again that has ended without a result.
func (c *Client) RetryTask(ctx context.Context, id string) (Task, error) {
	return c.task(ctx, http.MethodPost, id, "retry", nil)
}

// DeleteTask deletes a task that does not run, with input, result and logs.
func (c *Client) DeleteTask(ctx context.Context, id string) error {
	if id == "" {
		return errNoTask()
	}
	return c.doJSON(ctx, http.MethodDelete, c.url(nil, "v2", "tasks", id), nil, nil)
}

func (c *Client) task(ctx context.Context, method, id, action string, q url.Values) (t Task, err error) {
	if id == "" {
		return t, errNoTask()
	}
	path := []string{"v2", "tasks", id}
	if action != "" {
		path = append(path, action)
	}
	err = c.doJSON(ctx, method, c.url(q, path...), nil, &t)
	return t, err
}

func errNoTask() error {
	return stream.Errorf(stream.InvalidArgument, "id", "is missing: want the id of a task")
}

// TaskQuery says which tasks Tasks returns.
type TaskQuery struct {
	States []string // nil = all
	Model  string   // "" = all
	Text   string   // a part of the id, of the name of the input, of the consumer or of the error; "" = all
	Limit  int      // tasks of a page; 0 = 100
	After  string   // next of the page before; "" = the first page
}

// pageQuery returns the options of a page that are set.
func pageQuery(limit int, texts map[string]string) url.Values {
	v := url.Values{}
	for name, text := range texts {
		if text != "" {
			v.Set(name, text)
		}
	}
	if limit != 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	return v
}

// Tasks lists tasks, the newest first, and After of the next page; "" = this is the last page.
func (c *Client) Tasks(ctx context.Context, q TaskQuery) (list []Task, next string, err error) {
	v := pageQuery(q.Limit, map[string]string{"state": strings.Join(q.States, ","), "model": q.Model, "text": q.Text,
		"after": q.After})
	var page struct {
		Tasks []Task `json:"tasks"`
		Next  string `json:"next"`
	}
	err = c.doJSON(ctx, http.MethodGet, c.url(v, "v2", "tasks"), nil, &page)
	return page.Tasks, page.Next, err
}

// TaskResult opens the result of a finished task from an offset. The caller closes the reader.
func (c *Client) TaskResult(ctx context.Context, id string, offset int64) (io.ReadCloser, error) {
	if id == "" {
		return nil, errNoTask()
	}
	header := http.Header{}
	if offset > 0 {
		header.Set("Range", "bytes="+strconv.FormatInt(offset, 10)+"-")
	}
	resp, err := c.openTask(ctx, header, nil, id, "result")
	if err != nil {
		return nil, err
	}
	if offset > 0 && resp.StatusCode != http.StatusPartialContent {
		_ = resp.Body.Close()
		return nil, stream.Errorf(stream.Unsupported, "", "the server does not send a part of the result: begin at 0")
	}
	return resp.Body, nil
}

// TaskLogs opens what the model has written for people while a task ran: the end of the log of each of the newest
// attempts. With follow, the reader waits for further bytes until the task has ended. The caller closes the reader.
func (c *Client) TaskLogs(ctx context.Context, id string, follow bool) (io.ReadCloser, error) {
	if id == "" {
		return nil, errNoTask()
	}
	q := url.Values{}
	if follow {
		q.Set("follow", "true")
	}
	resp, err := c.openTask(ctx, http.Header{}, q, id, "logs")
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// openTask opens a file of a task.
func (c *Client) openTask(ctx context.Context, header http.Header, q url.Values, id, what string) (*http.Response,
	error) {
	return c.open(ctx, header, c.url(q, "v2", "tasks", id, what))
}

// open begins a request for a file.
func (c *Client) open(ctx context.Context, header http.Header, u *url.URL) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "", "%w", err)
	}
	req.Header = header
	resp, err := c.begin(req)
	if err == nil && resp.StatusCode/100 != 2 {
		_, err = c.finish(resp)
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}
