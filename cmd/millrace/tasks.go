package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/internal/newfile"
	"millrace/internal/setting"
	"millrace/stream/coded"
)

const tasksExamples = `  millrace tasks
  millrace tasks submit spotter picture.jpg --wait 10m --out answer.json
  millrace tasks submit spotter --file clip.mp4 --wait 10m --out results.jsonl
  id=$(millrace tasks submit cost --request request.json --json | jq -r .id)
  millrace tasks wait $id && millrace tasks result $id --out answer.json
  millrace tasks list --state failed --json
  millrace tasks retry $id`

func tasksCommand() *cobra.Command {
	c := listTasks("tasks")
	c.Short = "Submit, list, wait for, cancel, retry and delete tasks"
	c.Long = `List the tasks of a running server, the newest first: inferences whose answers the server keeps until they are
fetched. The server needs the setting data.`
	c.Example = tasksExamples
	c.AddCommand(listTasks("list"), submitTask(), showTask(), waitForTask(), taskResult(), taskLogs(),
		eachTask("cancel", "Cancel tasks that have not ended", func(ctx context.Context, cl *client.Client,
			id string) error {
			_, err := cl.CancelTask(ctx, id)
			return err
		}),
		eachTask("retry", "Queue tasks again that have ended without a result",
			func(ctx context.Context, cl *client.Client, id string) error {
				_, err := cl.RetryTask(ctx, id)
				return err
			}),
		eachTask("delete", "Delete tasks that do not run, with inputs, results and logs",
			func(ctx context.Context, cl *client.Client, id string) error { return cl.DeleteTask(ctx, id) }))
	return c
}

func listTasks(use string) *cobra.Command {
	c := &cobra.Command{
		Use:   use,
		Short: "List the tasks, the newest first",
		Example: "  millrace tasks list --state queued,running\n" +
			"  millrace tasks list --model spotter --limit 20 --json",
		Args: wrongUsage(cobra.NoArgs),
	}
	host := remoteFlags(c)
	var q client.TaskQuery
	c.Flags().StringSliceVar(&q.States, "state", nil,
		"only tasks in these states: queued, running, finished, failed, cancelled, expired")
	c.Flags().StringVar(&q.Model, "model", "", "only tasks of this model")
	c.Flags().StringVar(&q.Text, "text", "",
		"only tasks with this text in the id, the name of the input, the consumer or the error")
	limit := c.Flags().Int("limit", 100, "list at most this many tasks")
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		list, more, err := pagesOfTasks(c.Context(), cl, q, *limit)
		if err != nil {
			return withoutTasks(err)
		}
		if *asJSON {
			return writeJSON(c.OutOrStdout(), list)
		}
		rows := [][]string{{"ID", "STATE", "MODEL", "SUBMITTED", "ATTEMPT", "INPUT", "RESULT", "PROBLEM"}}
		for i := range list {
			rows = append(rows, taskRow(&list[i]))
		}
		if err := table(c.OutOrStdout(), rows...); err != nil || !more {
			return err
		}
		fmt.Fprintf(c.ErrOrStderr(), "further tasks are not listed: use --limit\n")
		return nil
	}
	return c
}

// withoutTasks explains the error of a server without the routes of tasks.
func withoutTasks(err error) error {
	if coded.CodeOf(err) == coded.NotFound {
		return fmt.Errorf("the server keeps no tasks: start the server with --data FOLDER: %w", err)
	}
	return err
}

// maxPage is the most tasks of a request.
const maxPage = 1000

// pagesOfTasks lists tasks, and reports whether there are more tasks than the limit.
func pagesOfTasks(ctx context.Context, cl *client.Client, q client.TaskQuery,
	limit int) (list []client.Task, more bool, err error) {
	list = []client.Task{}
	for len(list) < limit {
		q.Limit = min(limit-len(list), maxPage)
		page, next, err := cl.Tasks(ctx, q)
		if err != nil {
			return nil, false, err
		}
		list = append(list, page...)
		if q.After = next; next == "" {
			return list, false, nil
		}
	}
	return list, true, nil
}

func taskRow(t *client.Task) []string {
	result, problem := "", ""
	if t.Result != nil {
		result = setting.FormatSize(t.Result.Size)
	}
	if t.Error != nil {
		problem = oneLine(t.Error.Message)
	}
	return []string{
		t.ID, t.State, t.Model, ago(&t.Created, time.Now()), fmt.Sprintf("%d of %d", t.Attempt, t.LastAttempt),
		setting.FormatSize(t.Input.Size), result, problem,
	}
}

// submission has the flags of tasks submit.
type submission struct {
	client.TaskRequest
	request, file, zip, out string
	wait                    time.Duration
}

func submitTask() *cobra.Command {
	c := &cobra.Command{
		Use:   "submit MODEL [FILE]",
		Short: "Submit a task: a picture, a video, a zip of pictures, another file, or a request in JSON",
		Long: `Submit a task and print its id. The input is the body of a request to the infer route of the model: a picture,
or with --request a request in JSON; - is standard input. With --file clip.mp4 each frame of the video is a request,
with --zip each picture of the archive; the result then has a line of JSON for each. The task is stored when the
command ends.

A file above 64 MiB is sent in parts: after a broken connection, the command continues. With --idempotency-key, a
repeated command continues the upload of a command that was killed.

With --wait the command waits for the end of the task, and the exit status is 1 unless the task has finished in time.`,
		Example: "  millrace tasks submit spotter picture.jpg\n  millrace tasks submit cost --request " +
			"request.json --wait 10m --out answer.json",
		Args:              wrongUsage(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: completeArgs(completeModels, completePictures),
	}
	host := remoteFlags(c)
	s := &submission{}
	f := c.Flags()
	f.StringVar(&s.request, "request", "", "a file with a request of the Open Inference Protocol in JSON; - is "+
		"standard input")
	f.StringVar(&s.file, "file", "", "a file, as the argument FILE; each frame of a video is a request")
	f.StringVar(&s.zip, "zip", "", "a zip archive of pictures, each a request")
	annotate := f.Bool("annotate", false, "the result of a video is an MP4 with the results drawn over the frames")
	f.StringVar(&s.Type, "type", "", "media type of FILE, by its name unless given, for example image/jpeg")
	f.StringVar(&s.Version, "version", "", "version of the model")
	f.StringVar(&s.Key, "idempotency-key", "", "a repeated submission with the same key returns the first task")
	f.IntVar(&s.Priority, "priority", 0, "-100 to 100: tasks with a higher number begin first")
	f.IntVar(&s.Attempts, "attempts", 0, "attempts, 1 to 100 (3)")
	f.StringVar(&s.NotBefore, "not-before", "", "earliest begin: a time (RFC 3339) or a duration from now such as 10m")
	f.StringVar(&s.Expires, "expires", "", "latest begin, in the same form: a task that has not begun by then expires")
	f.StringVar(&s.Webhook, "webhook", "", "address that gets the ended task by POST (tasks.webhooks of the server)")
	f.DurationVar(&s.Retention, "retention", 0,
		"time from the end of the task to the deletion (tasks.retention of the server)")
	f.DurationVar(&s.wait, "wait", 0, "wait for the end of the task, at most this long")
	f.StringVar(&s.out, "out", "", "with --wait: write the result to this file; - is standard output")
	asJSON := f.Bool("json", false, "print the task as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *annotate {
			s.Annotate = "mp4"
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		return s.run(c, cl, args, *asJSON)
	}
	return c
}

func (s *submission) run(c *cobra.Command, cl *client.Client, args []string, asJSON bool) error {
	s.Model = args[0]
	in, err := s.open(c.InOrStdin(), args[1:])
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	t, err := s.send(c, cl)
	if err != nil {
		return withoutTasks(err)
	}
	if s.wait == 0 {
		return printTask(c, &t, asJSON, t.ID)
	}
	limited, cancel := context.WithTimeout(c.Context(), s.wait)
	defer cancel()
	if t, err = waitTask(limited, cl, t.ID, c.ErrOrStderr()); err != nil {
		return err
	}
	if s.out != "" && t.State == "finished" {
		if err := saveResult(c, cl, &t, s.out); err != nil {
			return err
		}
	}
	if s.out != "-" {
		if err := printTask(c, &t, asJSON, t.ID+" "+t.State); err != nil {
			return err
		}
	}
	return endOfTask(&t)
}

// uploadAbove is the size above which a file is sent in parts, so that a broken connection does not begin again.
const uploadAbove = 64 << 20

// send submits the task: a large file in parts, any other input in one request.
func (s *submission) send(c *cobra.Command, cl *client.Client) (client.Task, error) {
	file, ok := s.Body.(*os.File)
	if !ok || s.Size <= uploadAbove {
		return cl.SubmitTask(c.Context(), s.TaskRequest)
	}
	lines, shown := newProgress(c.ErrOrStderr()), ""
	defer lines.end()
	return cl.UploadTask(c.Context(), s.TaskRequest, file, client.UploadOptions{
		Progress: func(sent, total int64) {
			text := fmt.Sprintf("sending %d of %d MiB  %s", sent>>20, total>>20, bar(sent, total))
			if lines.overwrite && text != shown {
				lines.line(text)
				shown = text
			}
		},
		Broken: func(err error) { lines.line("the upload is broken, trying again: " + oneLine(err.Error())) },
	})
}

// open opens the input.
func (s *submission) open(stdin io.Reader, files []string) (io.Closer, error) {
	name := s.request
	if s.zip != "" {
		s.Kind, files = "pictures", append(files, s.zip)
	}
	if s.file != "" {
		files = append(files, s.file)
	}
	switch {
	case len(files) > 1:
		return nil, usagef("FILE, --file and --zip: name one input, not %s", strings.Join(files, " and "))
	case s.out != "" && s.wait == 0:
		return nil, usagef("--out: needs --wait")
	case s.request != "" && len(files) > 0:
		return nil, usagef("--request: is the input: leave out %s", files[0])
	case s.request == "" && len(files) == 0:
		return nil, usagef("FILE: is missing: name a picture, or a request with --request")
	case s.request == "":
		name = files[0]
	}
	if s.Type == "" && s.request == "" {
		s.Type = mediaType(strings.ToLower(filepath.Ext(name)))
	}
	if name == "-" {
		s.Body, s.Size = stdin, -1
		return io.NopCloser(stdin), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a folder: name a file", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.Body, s.Size, s.Name = f, info.Size(), filepath.Base(name)
	if !info.Mode().IsRegular() {
		s.Size = -1
	}
	return f, nil
}

// mediaType returns the media type of an extension. Systems without a list of media types know few videos.
func mediaType(extension string) string {
	known := map[string]string{".mp4": "video/mp4", ".mov": "video/quicktime", ".webm": "video/webm",
		".mkv": "video/x-matroska", ".avi": "video/x-msvideo", ".ts": "video/mp2t", ".zip": "application/zip"}
	return cmp.Or(known[extension], mime.TypeByExtension(extension))
}

func printTask(c *cobra.Command, t *client.Task, asJSON bool, text string) error {
	if asJSON {
		return writeJSON(c.OutOrStdout(), t)
	}
	_, err := fmt.Fprintln(c.OutOrStdout(), text)
	return err
}

// endOfTask returns nil for a finished task.
func endOfTask(t *client.Task) error {
	if t.State == "finished" {
		return nil
	}
	if t.Error != nil {
		return fmt.Errorf("the task %s is %s: %s", t.ID, t.State, t.Error.Message)
	}
	return fmt.Errorf("the task %s is %s", t.ID, t.State)
}

func showTask() *cobra.Command {
	c := &cobra.Command{
		Use:     "show ID",
		Short:   "Show a task",
		Example: "  millrace tasks show 01a22400e8b0a1cbd7e9c1a54a3d8f10",
		Args:    wrongUsage(cobra.ExactArgs(1)),
	}
	host := remoteFlags(c)
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		t, err := cl.Task(c.Context(), args[0])
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(c.OutOrStdout(), t)
		}
		return table(c.OutOrStdout(), taskRows(&t)...)
	}
	return c
}

// taskRows returns the fields of a task that are set.
func taskRows(t *client.Task) [][]string {
	rows := [][]string{{"id", t.ID}, {"state", stateOfTask(t)},
		{"model", strings.TrimSuffix(t.Model+" version "+t.Version, " version ")},
		{"input", fileOfTask(&t.Input)}}
	if t.Result != nil {
		rows = append(rows, []string{"result", fileOfTask(t.Result)})
	}
	for _, at := range []struct {
		name string
		time time.Time
	}{
		{"submitted", t.Created}, {"not before", t.NotBefore}, {"expires", t.Expires}, {"started", t.Started},
		{"ended", t.Ended},
	} {
		if !at.time.IsZero() {
			rows = append(rows, []string{at.name, at.time.Local().Format(time.DateTime)})
		}
	}
	if t.Owner != "" {
		rows = append(rows, []string{"owner", t.Owner})
	}
	if t.Error != nil {
		rows = append(rows, []string{"problem", string(t.Error.Code) + ": " + oneLine(t.Error.Message)})
	}
	return rows
}

func fileOfTask(f *client.TaskFile) string {
	return strings.Join(strings.Fields(f.Name+" "+setting.FormatSize(f.Size)+" "+f.Type), " ")
}

func waitForTask() *cobra.Command {
	c := &cobra.Command{
		Use:     "wait ID",
		Short:   "Wait for the end of a task; the exit status is 0 when the task has finished, else 1",
		Example: "  millrace tasks wait 01a22400e8b0a1cbd7e9c1a54a3d8f10 && echo done",
		Args:    wrongUsage(cobra.ExactArgs(1)),
	}
	host := remoteFlags(c)
	asJSON := c.Flags().Bool("json", false, "print the task as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		t, err := waitTask(c.Context(), cl, args[0], c.ErrOrStderr())
		if err != nil {
			return err
		}
		return errors.Join(printTask(c, &t, *asJSON, t.ID+" "+t.State), endOfTask(&t))
	}
	return c
}

func taskResult() *cobra.Command {
	c := &cobra.Command{
		Use:     "result ID",
		Short:   "Fetch the result of a finished task",
		Example: "  millrace tasks result 01a22400e8b0a1cbd7e9c1a54a3d8f10 --out answer.json",
		Args:    wrongUsage(cobra.ExactArgs(1)),
	}
	host := remoteFlags(c)
	out := c.Flags().String("out", "-", "write the result to this file; - is standard output")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		t, err := cl.Task(c.Context(), args[0])
		if err != nil {
			return err
		}
		if t.State != "finished" {
			return endOfTask(&t)
		}
		return saveResult(c, cl, &t, *out)
	}
	return c
}

// eachTask is a command that changes tasks. An error does not end the command before the last task.
func eachTask(use, short string, change func(context.Context, *client.Client, string) error) *cobra.Command {
	c := &cobra.Command{
		Use:     use + " ID...",
		Short:   short,
		Example: "  millrace tasks " + use + " 01a22400e8b0a1cbd7e9c1a54a3d8f10",
		Args:    wrongUsage(cobra.MinimumNArgs(1)),
	}
	host := remoteFlags(c)
	c.RunE = func(c *cobra.Command, ids []string) error {
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		var failed []error
		for _, id := range ids {
			failed = append(failed, change(c.Context(), cl, id))
		}
		return errors.Join(failed...)
	}
	return c
}

// saveResult writes the result of a task to a file, and continues a broken transfer.
func saveResult(c *cobra.Command, cl *client.Client, t *client.Task, file string) error {
	if file == "-" {
		return fetchResult(c.Context(), cl, t, c.OutOrStdout())
	}
	return newfile.Write(file, func(w io.Writer) error { return fetchResult(c.Context(), cl, t, w) })
}

// maxContinued is how often a broken transfer is continued.
const maxContinued = 5

// fetchResult writes the result of a task to w, and checks the digest.
func fetchResult(ctx context.Context, cl *client.Client, t *client.Task, w io.Writer) error {
	sum, at := sha256.New(), int64(0)
	for try := 0; ; try++ {
		r, err := cl.TaskResult(ctx, t.ID, at)
		if err != nil {
			return err
		}
		n, err := io.Copy(io.MultiWriter(w, sum), r)
		_ = r.Close()
		at += n
		switch {
		case err == nil && at == t.Result.Size && hex.EncodeToString(sum.Sum(nil)) != t.Result.SHA256:
			return fmt.Errorf("the result of %s is damaged: the SHA-256 is not %s", t.ID, t.Result.SHA256)
		case err == nil && at == t.Result.Size:
			return nil
		case try == maxContinued:
			return fmt.Errorf("only %d of the %d bytes of the result were received: %w", at, t.Result.Size, err)
		}
	}
}
