package tasks

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/s3test"
	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// bucket returns the options of a store whose inputs and results are in the bucket tasks of a server.
func bucket(of *s3test.Server) Options {
	return Options{S3: &blob.S3Options{Endpoint: of.Endpoint, Bucket: "tasks", Prefix: "p", Region: "us-east-1",
		AccessKey: of.AccessKey, SecretKey: of.SecretKey}}
}

func openObjects(t *testing.T, dir string, o Options) *Data {
	t.Helper()
	d, err := OpenData(t.Context(), dir, true, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// objectsOf returns the objects of the tasks in the bucket.
func objectsOf(of *s3test.Server) []string {
	return slices.DeleteFunc(of.Objects("tasks"), func(name string) bool { return name == "p/"+objectsKey })
}

// TestObjects: with a bucket, inputs, results and records of finished tasks are objects, and logs are files. Tasks are
// there after a restart, after a lost stream and after the loss of the folder, and a deletion deletes everything.
func TestObjects(t *testing.T) {
	of := s3test.Start(t, "tasks")
	dir, o := t.TempDir(), bucket(of)
	d := openObjects(t, dir, o)
	r := &rig{Store: d.Store, t: t}
	task := r.submit(Task{Model: "m", Owner: "eva", Key: "order 7"}, "hello")
	stop := consume(t, d.Store, 1, 0, func(c Claim) (File, error) {
		_, _ = io.WriteString(c.Log(), "a line")
		return write(t, c), nil
	})
	waitFor(t, func() bool { now, _ := d.Get(task.ID); return now.State == Finished })
	stop()
	waits := r.submit(Task{Model: "m"}, "waits")
	key := "p/" + folder(task.ID)
	want := []string{key + "/input", key + "/result-1", key + "/task.json", "p/" + inputKey(waits.ID)}
	slices.Sort(want)
	got := objectsOf(of)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the objects: %v, want %v", got, want)
	}
	if n := stored(t, dir); n != int64(len("a line")) {
		t.Errorf("%d bytes are in the folder", n)
	}
	if err := d.files.Put(t.Context(), inputKey(newID(time.Now())), []byte("of no task")); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if _, err := OpenData(t.Context(), dir, true, Options{}); err == nil || !strings.Contains(err.Error(),
		"set tasks.blobs") {
		t.Errorf("without the setting: %v", err)
	}
	d = openObjects(t, dir, o)
	if got := objectsOf(of); len(got) != len(want) {
		t.Errorf("after a sweep: %v", got)
	}
	d.Close()

	sound := func(problems int) *CheckReport {
		t.Helper()
		report, err := CheckData(t.Context(), dir, o)
		if err != nil || len(report.Problems) != problems {
			t.Fatalf("the check: %+v, %v", report, err)
		}
		return report
	}
	if report := sound(0); report.Tasks != 2 || report.Files != 3 {
		t.Errorf("a sound folder: %+v", report)
	}

	for name, lose := range map[string]func() string{
		"a lost stream": func() string {
			if err := os.RemoveAll(storeFolder(dir)); err != nil {
				t.Fatal(err)
			}
			return dir
		},
		"a lost folder": func() string {
			id, err := os.ReadFile(filepath.Join(dir, objectsFile))
			next := t.TempDir()
			if _, err := OpenData(t.Context(), next, true, o); err == nil || !strings.Contains(err.Error(),
				strings.TrimSpace(string(id))) {
				t.Errorf("another folder: %v", err)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(next, objectsFile), id, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			return next
		},
	} {
		d = openObjects(t, lose(), o)
		r.Store = d.Store
		if got := r.result(task.ID); got != "hello!" {
			t.Errorf("after %s: the result %q", name, got)
		}
		if _, err := d.Get(waits.ID); coded.CodeOf(err) != coded.NotFound || len(objectsOf(of)) != 3 {
			t.Errorf("after %s: %v, %v", name, err, objectsOf(of))
		}
		d.Close()
	}

	file := of.Path("tasks/p/" + resultKey(task.ID, 1))
	if err := os.WriteFile(file, []byte("hellO!"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p := sound(1).Problems[0]; p.Task != task.ID || p.File != resultKey(task.ID, 1) {
		t.Errorf("a damaged result: %+v", p)
	}
	d = openObjects(t, dir, o)
	now, _ := d.Get(task.ID)
	if _, err := d.Result(t.Context(), now); !errors.Is(err, blob.ErrDamaged) ||
		!strings.Contains(err.Error(), task.ID) {
		t.Errorf("a damaged result: %v", err)
	}
	if err := d.Delete(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	if got := objectsOf(of); len(got) != 0 || stored(t, dir) != 0 {
		t.Errorf("after the deletion: %v and %d bytes", got, stored(t, dir))
	}
}

// TestObjectsAway: while the S3 server is away, submissions are refused by the name of the bucket, running tasks keep
// their results, waiting tasks wait, deletions are made up for, and no attempt is lost. A start waits for the server.
func TestObjectsAway(t *testing.T) {
	of := s3test.Start(t, "tasks")
	dir, o := t.TempDir(), bucket(of)
	o.Lease = time.Minute
	waiting := make(chan struct{}) // closed when a result could not be stored
	o.Log = slog.New(slog.NewTextHandler(lookFor("a result cannot be stored", func() { close(waiting) }), nil))
	d := openObjects(t, dir, o)
	r := &rig{Store: d.Store, t: t}
	gone := r.submit(Task{Model: "gone"}, "x")
	runs := r.submit(Task{Model: "m", Attempts: 1}, "runs")
	written, goOn := make(chan bool), make(chan bool)
	var once bool
	working, stop := context.WithCancel(t.Context())
	defer stop()
	go consumer(d.Store, "m", nil, func(c Claim) (File, error) {
		in, err := c.Input()
		if err != nil {
			return File{}, err
		}
		_ = in.Close()
		out, err := c.Create()
		if err == nil {
			_, err = io.WriteString(out, c.Task().ID)
		}
		if err != nil {
			return File{}, err
		}
		if !once {
			once = true
			close(written)
			<-goOn
		}
		info, err := out.Commit()
		return File{Info: info}, err
	}).Run(working, 0)
	waits := r.submit(Task{Model: "m", Attempts: 1}, "waits")
	<-written
	of.Stop()
	_, _, err := d.Submit(t.Context(), Submission{Task: Task{Model: "m"}, Data: text("y")})
	if !errors.Is(err, blob.ErrAway) || coded.CodeOf(err) != coded.Unavailable ||
		!strings.Contains(err.Error(), "tasks.blobs") || !strings.Contains(err.Error(), "s3://tasks/p") {
		t.Errorf("a submission: %v", err)
	}
	if _, err := d.Cancel(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	if err := d.Delete(t.Context(), gone.ID); err != nil {
		t.Errorf("a deletion: %v", err)
	}
	close(goOn)
	select {
	case <-waiting:
	case <-time.After(time.Minute):
		t.Fatal("the result does not wait for the S3 server")
	}
	of.Run()
	for _, task := range []Task{runs, waits} {
		waitFor(t, func() bool { now, _ := d.Get(task.ID); return now.State == Finished })
		if got := r.result(task.ID); got != task.ID {
			t.Errorf("the result: %q", got)
		}
	}
	if now, _ := d.Get(runs.ID); now.Attempt != 1 {
		t.Errorf("the task that ran was run %d times", now.Attempt)
	}
	if d.deleteLeftovers(t.Context()) || slices.ContainsFunc(objectsOf(of), func(name string) bool {
		return strings.Contains(name, gone.ID)
	}) {
		t.Errorf("the blobs of a deleted task: %v", objectsOf(of))
	}

	// A consumer gives a task back whose input cannot be read.
	late := r.submit(Task{Model: "late", Attempts: 1}, "late")
	of.Stop()
	ended := make(chan End, 100)
	go consumer(d.Store, "late", func(e End) { ended <- e }, func(c Claim) (File, error) {
		in, err := c.Input()
		if err != nil {
			return File{}, err
		}
		_ = in.Close()
		return write(t, c), nil
	}).Run(working, 0)
	if e := <-ended; e.Outcome != "released" || !errors.Is(e.Err, blob.ErrAway) {
		t.Errorf("without the S3 server: %+v", e)
	}
	second, opened := t.TempDir(), make(chan error, 1)
	go func() { _, err := OpenData(t.Context(), second, true, o); opened <- err }()
	of.Run()
	waitFor(t, func() bool { now, _ := d.Get(late.ID); return now.State == Finished })
	if err := <-opened; err == nil || !strings.Contains(err.Error(), "of another data folder") {
		t.Errorf("a start without the S3 server: %v", err)
	}
}

// TestObjectsSilent: a connected S3 server that does not answer holds up no lease. The objects of a task whose
// retention is over are removed when the server answers.
func TestObjectsSilent(t *testing.T) {
	of := s3test.Start(t, "tasks")
	o := bucket(of)
	o.Lease, o.Retention = 500*time.Millisecond, time.Millisecond
	d := openObjects(t, t.TempDir(), o)
	r := &rig{Store: d.Store, t: t}
	gone := r.submit(Task{Model: "gone"}, "x")
	if _, err := d.Cancel(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	runs := r.submit(Task{Model: "m"}, "runs")
	if _, err := d.ClaimRemote(t.Context(), "a", "b", onlyModel("m").Serves); err != nil {
		t.Fatal(err)
	}
	of.Stop()
	silent, err := net.Listen("tcp", strings.TrimPrefix(of.Endpoint, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	waitFor(t, func() bool { _, err := d.Get(gone.ID); return coded.CodeOf(err) == coded.NotFound })
	waitFor(t, func() bool { now, _ := d.Get(runs.ID); return now.State == Queued })
	stop()
	running.Wait()
	if err := silent.Close(); err != nil {
		t.Fatal(err)
	}
	of.Run()
	if d.deleteLeftovers(t.Context()) || !slices.Equal(objectsOf(of), []string{"p/" + inputKey(runs.ID)}) {
		t.Errorf("the objects: %v", objectsOf(of))
	}
}

// lookFor returns a log that calls f at the first line with a text.
func lookFor(text string, f func()) io.Writer { return &finder{text: text, found: sync.OnceFunc(f)} }

type finder struct {
	text  string
	found func()
}

func (w *finder) Write(b []byte) (int, error) {
	if strings.Contains(string(b), w.text) {
		w.found()
	}
	return len(b), nil
}

// consumer returns a consumer of the tasks of one model.
func consumer(s *Store, model string, onEnd func(End), run handlerFunc) *Consumer {
	return &Consumer{Source: s, Name: model, Slots: 1, Models: onlyModel(model), Handler: run, OnEnd: onEnd,
		Log: slog.New(slog.DiscardHandler)}
}

// onlyModel serves one model.
type onlyModel string

func (m onlyModel) Serves(model string) bool { return model == string(m) }
func (m onlyModel) Ready() []string          { return []string{string(m)} }

// TestObjectsPairs: a folder and a prefix that do not belong together are refused, so that no blob is removed.
func TestObjectsPairs(t *testing.T) {
	of := s3test.Start(t, "tasks", "empty")
	files, small := t.TempDir(), t.TempDir()
	d := openData(t, files)
	submitTo(t, d, strings.Repeat("x", maxSmall+1))
	d.Close()
	d = openData(t, small)
	kept := []string{submitTo(t, d, "").ID, submitTo(t, d, "small").ID}
	d.Close()
	first, o := t.TempDir(), bucket(of)
	d = openObjects(t, first, o)
	submitTo(t, d, "x")
	d.Close()
	elsewhere, strange := bucket(of), bucket(of)
	elsewhere.S3.Bucket = "empty"
	strange.S3.Prefix = ""
	strange.S3.Bucket = "empty"
	if err := os.MkdirAll(of.Path("empty/7f/x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(of.Path("empty/7f/x/input"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := of.Objects("tasks")
	for _, c := range []struct {
		name, dir string
		o         Options
		want      string
	}{
		{"a second folder", t.TempDir(), o, "of another data folder"},
		{"a folder with files", files, elsewhere, "export"},
		{"another prefix", first, elsewhere, "name the bucket and the prefix of the folder"},
		{"strange objects", t.TempDir(), strange, "unknown data folder"},
	} {
		_, err := OpenData(t.Context(), c.dir, true, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "tasks.blobs") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if got := of.Objects("tasks"); !slices.Equal(got, before) {
		t.Errorf("the objects: %v, before: %v", got, before)
	}
	d = openObjects(t, small, elsewhere) // the records have the inputs
	r := &rig{Store: d.Store, t: t}
	for range kept {
		finishOne(t, d)
	}
	for i, want := range []string{"", "small"} {
		if r.input(kept[i]) != want || r.result(kept[i]) != want {
			t.Errorf("a folder with the input %q: %q, %q", want, r.input(kept[i]), r.result(kept[i]))
		}
	}
	// Later objects of others below the prefix stay, and are no faults of the folder.
	if err := os.MkdirAll(of.Path("tasks/p/photos/2026"), 0o700); err != nil {
		t.Fatal(err)
	}
	photo := of.Path("tasks/p/photos/2026/a.jpg")
	if err := os.WriteFile(photo, []byte("of others"), 0o600); err != nil {
		t.Fatal(err)
	}
	openObjects(t, first, o).Close()
	if b, err := os.ReadFile(photo); err != nil || string(b) != "of others" {
		t.Errorf("an object of others: %q, %v", b, err)
	}
	if report, err := CheckData(t.Context(), first, o); err != nil || len(report.Problems) != 0 {
		t.Errorf("the check: %+v, %v", report, err)
	}
	wrong := bucket(of)
	wrong.S3.SecretKey = "x"
	if _, err := OpenData(t.Context(), first, true, wrong); !blob.IsRefused(err) {
		t.Errorf("a wrong secret: %v", err)
	}
}

// TestObjectsUpload: an upload in parts becomes an object, also when the S3 server is away at the last byte.
func TestObjectsUpload(t *testing.T) {
	of := s3test.Start(t, "tasks")
	d := openObjects(t, t.TempDir(), bucket(of))
	upload := func() (Upload, error) {
		u, _, err := d.CreateUpload(t.Context(), NewUpload{Upload: Upload{Task: Task{Model: "m"}, Length: 5}})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = d.AppendUpload(t.Context(), u.Task.ID, UploadPart{Data: func(w io.Writer) error {
			_, err := io.WriteString(w, "hello")
			return err
		}})
		return u, err
	}
	first, err := upload()
	if err != nil {
		t.Fatal(err)
	}
	of.Stop()
	second, err := upload()
	if !errors.Is(err, blob.ErrAway) {
		t.Errorf("without the S3 server: %v", err)
	}
	of.Run()
	d.finishUploads(t.Context())
	r := &rig{Store: d.Store, t: t}
	for _, u := range []Upload{first, second} {
		task, err := d.Get(u.Task.ID)
		if err != nil {
			t.Fatal(err)
		}
		in, err := d.Input(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(task.Input.Check(in), in.Close()); err != nil {
			t.Error(err)
		}
		if err := finish(t, claim(t, d.Store)); err != nil {
			t.Fatal(err)
		}
		if got := r.result(u.Task.ID); got != "hello!" {
			t.Errorf("the result: %q", got)
		}
	}
	if left, _ := os.ReadDir(d.uploads.folder); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

// TestObjectsNATS: servers of one NATS share the bucket.
func TestObjectsNATS(t *testing.T) {
	n, of := startNATS(t, nil), s3test.Start(t, "tasks")
	dir := t.TempDir()
	a, b := n.open(dir, bucket(of)), n.open(dir, bucket(of))
	task := submitTo(t, a, "shared")
	seen(t, b.Store, task.ID, Queued)
	finishOne(t, b)
	seen(t, a.Store, task.ID, Finished)
	r := &rig{Store: a.Store, t: t}
	if got := r.result(task.ID); got != "shared" {
		t.Errorf("the result: %q", got)
	}
	if !slices.Contains(objectsOf(of), path.Join("p", resultKey(task.ID, 1))) {
		t.Errorf("the objects: %v", objectsOf(of))
	}
}
