package tasks

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/s3test"
	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// fillData makes a data folder with tasks of several states and logs, and returns the tasks.
func fillData(t *testing.T, dir string, o Options) []Task {
	t.Helper()
	d := openObjects(t, dir, o)
	defer d.Close()
	r := &rig{Store: d.Store, t: t}
	done := r.submit(Task{Model: "m", Owner: "eva", Key: "order 7"}, "hello")
	c := claim(t, d.Store)
	_, _ = io.WriteString(c.Log(), "a line\n")
	if err := finish(t, c); err != nil {
		t.Fatal(err)
	}
	failed := r.submit(Task{Model: "m", Attempts: 1}, "fails")
	if err := claim(t, d.Store).Fail(Failure{Code: "internal", Message: "broken"}, true); err != nil {
		t.Fatal(err)
	}
	runs := r.submit(Task{Model: "m"}, "runs")
	claim(t, d.Store)
	waits := r.submit(Task{Model: "m"}, strings.Repeat("waits", 1000))
	var all []Task
	for _, task := range []Task{done, failed, runs, waits} {
		now, err := d.Get(task.ID)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, now)
	}
	return all
}

// exported returns the archive of a data folder.
func exported(t *testing.T, dir string, o Options) []byte {
	t.Helper()
	var b bytes.Buffer
	report, err := Export(t.Context(), dir, &b, ArchiveOptions{Options: o})
	if err != nil {
		t.Fatal(err)
	}
	if report.Total() != 4 || report.Tasks[Finished] != 1 || report.Tasks[Running] != 1 || report.Blobs != 6 {
		t.Errorf("the report: %+v", report)
	}
	return b.Bytes()
}

// checkMoved checks that a folder has the tasks with their files, and that the waiting tasks run.
func checkMoved(t *testing.T, dir string, o Options, want []Task) {
	t.Helper()
	report, err := CheckData(t.Context(), dir, o)
	if err != nil || report.Tasks != 4 || report.Files != 5 || len(report.Problems) != 0 {
		t.Fatalf("the check: %+v, %v", report, err)
	}
	o.Lease = 200 * time.Millisecond
	d := openObjects(t, dir, o)
	r := &rig{Store: d.Store, t: t}
	for _, task := range want {
		if got, err := d.Get(task.ID); err != nil || !bytes.Equal(encode(got, contents{}), encode(task, contents{})) {
			t.Errorf("got %+v, %v, want %+v", got, err, task)
		}
	}
	if st := d.Stats(); st.Submitted != 0 || st.Bytes == 0 {
		t.Errorf("the counts: %+v", st)
	}
	if got := r.result(want[0].ID); got != "hello!" {
		t.Errorf("the result: %q", got)
	}
	log := d.Logs(t.Context(), want[0].ID)
	if got, err := io.ReadAll(log); err != nil || string(got) != "a line\n" {
		t.Errorf("the log: %q, %v", got, err)
	}
	again, there, err := d.Submit(t.Context(), Submission{Task: Task{Model: "m", Owner: "eva", Key: "order 7"},
		Data: text("hello")})
	if err != nil || !there || again.ID != want[0].ID {
		t.Errorf("the idempotency key: %s, there %v, %v", again.ID, there, err)
	}
	go d.Run(t.Context())
	stop := consume(t, d.Store, 1, 0, func(c Claim) (File, error) { return write(t, c), nil })
	defer stop()
	for _, task := range want[2:] {
		waitFor(t, func() bool { now, _ := d.Get(task.ID); return now.State == Finished })
	}
	if got := r.result(want[3].ID); got != strings.Repeat("waits", 1000)+"!" {
		t.Errorf("the result of a task that waited has %d bytes", len(got))
	}
}

// TestArchive: an import has the tasks of the export, also when it comes from a pipe. Waiting tasks run, finished tasks
// have their results and logs.
func TestArchive(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "new", "data")
	want := fillData(t, from, Options{})
	if err := os.WriteFile(filepath.Join(from, "uploads", newID(time.Now())+".json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	go func() {
		report, err := Export(t.Context(), from, w, ArchiveOptions{})
		if err == nil && report.Uploads != 1 {
			err = errors.New("the unfinished upload is not counted")
		}
		_ = w.CloseWithError(err)
	}()
	steps := 0
	report, err := Import(t.Context(), to, r, ArchiveOptions{Progress: func(int, int64, *Manifest) { steps++ }})
	if err != nil || report.Total() != 4 || steps != 4 {
		t.Fatalf("%+v, %v, %d calls of Progress", report, err, steps)
	}
	checkMoved(t, to, Options{}, want)
}

// TestArchiveS3: an archive moves tasks from files to S3, and back.
func TestArchiveS3(t *testing.T) {
	of := s3test.Start(t, "tasks")
	files, objects, back := t.TempDir(), t.TempDir(), t.TempDir()
	want := fillData(t, files, Options{})
	if _, err := Import(t.Context(), objects, bytes.NewReader(exported(t, files, Options{})),
		ArchiveOptions{Options: bucket(of)}); err != nil {
		t.Fatal(err)
	}
	archive := exported(t, objects, bucket(of))
	if _, err := Import(t.Context(), back, bytes.NewReader(archive), ArchiveOptions{}); err != nil {
		t.Fatal(err)
	}
	checkMoved(t, objects, bucket(of), want)
	checkMoved(t, back, Options{}, want)

	// An import that fails leaves no object.
	o := bucket(of)
	o.S3.Prefix = "q"
	before := of.Objects("tasks")
	half := bytes.NewReader(archive[:len(archive)/2])
	if _, err := Import(t.Context(), t.TempDir(), half, ArchiveOptions{Options: o}); err == nil {
		t.Error("half an archive was imported")
	}
	if got := of.Objects("tasks"); !slices.Equal(got, before) {
		t.Errorf("the objects: %v, before: %v", got, before)
	}
	_, err := Import(t.Context(), t.TempDir(), bytes.NewReader(archive), ArchiveOptions{Options: bucket(of)})
	if err == nil || !strings.Contains(err.Error(), "another data folder") {
		t.Errorf("into a prefix that is in use: %v", err)
	}
}

// file is a file of an archive.
type file struct {
	tar.Header
	text []byte
}

func unpack(t *testing.T, archive []byte) (files []file) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		b, failed := io.ReadAll(r)
		if err := errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}
		files = append(files, file{*h, b})
	}
}

func pack(t *testing.T, files []file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		f.Size = int64(len(f.text))
		if f.Typeflag != tar.TypeReg {
			f.Size = 0
		}
		if err := w.WriteHeader(&f.Header); err != nil {
			t.Fatal(err)
		}
		if f.Size > 0 {
			if _, err := w.Write(f.text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestArchiveDamaged: every change of an archive is refused, and leaves an empty folder.
func TestArchiveDamaged(t *testing.T) {
	from := t.TempDir()
	fillData(t, from, Options{})
	archive := exported(t, from, Options{})
	record := func(f []file) int { // of the finished task
		return slices.IndexFunc(f, func(f file) bool { return strings.Contains(string(f.text), `"state":"finished"`) })
	}
	replace := func(old, by string) func([]file) []file {
		return func(f []file) []file {
			i := record(f)
			if !strings.Contains(string(f[i].text), old) {
				t.Fatalf("%s is not in %s", old, f[i].text)
			}
			f[i].text = []byte(strings.Replace(string(f[i].text), old, by, 1))
			return f
		}
	}
	manifest := func(old, by string) func([]file) []file {
		return func(f []file) []file {
			f[0].text = []byte(strings.Replace(string(f[0].text), old, by, 1))
			return f
		}
	}
	for _, c := range []struct {
		name   string
		change func([]file) []file
		want   string
	}{
		{"a bit", func(f []file) []file { f[record(f)+1].text[0] ^= 1; return f }, "has the SHA-256"},
		{"a longer file", func(f []file) []file { f[record(f)+1].text = []byte("hello+"); return f }, "with 6 bytes"},
		{"a link", func(f []file) []file {
			input := &f[record(f)+1]
			input.Header = tar.Header{Typeflag: tar.TypeSymlink, Name: input.Name, Linkname: "/etc/passwd"}
			return f
		}, "is no regular file"},
		{"a path", func(f []file) []file { f[record(f)+1].Name = "../../input"; return f }, "in place of"},
		{"a further file", func(f []file) []file {
			return append(f, file{tar.Header{Typeflag: tar.TypeReg, Name: "x"}, []byte("{}")})
		}, "is not the record of a task"},
		{"no manifest", func(f []file) []file { return f[1:] }, "not with manifest.json"},
		{"nothing", func([]file) []file { return nil }, "is empty"},
		{"the last task missing", func(f []file) []file { return f[:record(f)] }, "ends early"},
		{"the last file missing", func(f []file) []file { return f[:len(f)-1] }, "ends before"},
		{"a task twice", func(f []file) []file { return append(f, f[1:3]...) }, "is there twice"},
		{"a later version", manifest(`"format":1`, `"format":2`), "later version"},
		{"a later form of records", manifest(`"data":1`, `"data":2`), "later version"},
		{"other counts", manifest(`"blobs":6`, `"blobs":7`), "the manifest says"},
		{"more bytes", manifest(`"bytes":`, `"bytes":-`), "more bytes than its manifest"},
		{"an unknown field", replace(`"model"`, `"modell"`), "not the JSON of this version"},
		{"an unknown state", replace(`"finished"`, `"done"`), "is not the record of a task"},
		{"no result", replace(`"result":`, `"result":null,"error":null,"input":`), "finished without a result"},
		{"a name out of the folder", replace(`"name":"log-1.0"`, `"name":"log-1.0/../x"`), "lists the file"},
		{"another name of a log", replace(`"name":"log-1.0"`, `"name":"log-01.0"`), "lists the file"},
		{"a log of no attempt", replace(`"name":"log-1.0"`, `"name":"log-2.0"`), "lists the file"},
		{"an endless log", replace(`"name":"log-1.0"`, `"name":"log-1.9223372036854775807"`), "lists the file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Import(t.Context(), dir, bytes.NewReader(pack(t, c.change(unpack(t, archive)))), ArchiveOptions{})
			if err == nil || coded.CodeOf(err) != coded.InvalidArgument || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
	for _, n := range []int{1, 511, 700, 2000, len(archive) / 2} {
		if _, err := Import(t.Context(), t.TempDir(), bytes.NewReader(archive[:n]), ArchiveOptions{}); err == nil {
			t.Errorf("%d bytes of the archive were imported", n)
		}
	}
}

// TestArchiveRefused: a folder in use is not exported and not imported into, nor is a folder with files; an interrupted
// import is noticed; a damaged input is not exported.
func TestArchiveRefused(t *testing.T) {
	dir := t.TempDir()
	all := fillData(t, dir, Options{})
	archive := exported(t, dir, Options{})
	d := openData(t, dir)
	_, exports := Export(t.Context(), dir, io.Discard, ArchiveOptions{})
	_, imports := Import(t.Context(), dir, bytes.NewReader(archive), ArchiveOptions{})
	for _, err := range []error{exports, imports} {
		if err == nil || !strings.Contains(err.Error(), "another process") {
			t.Errorf("in use: %v", err)
		}
	}
	if _, err := d.Get(all[0].ID); err != nil {
		t.Error(err)
	}
	d.Close()
	if _, err := Import(t.Context(), dir, bytes.NewReader(archive), ArchiveOptions{}); !errors.Is(err, errNotEmpty) {
		t.Errorf("into a folder with files: %v", err)
	}
	if report, err := CheckData(t.Context(), dir, Options{}); err != nil || len(report.Problems) != 0 {
		t.Errorf("after the refused import: %+v, %v", report, err)
	}
	flip(t, dir, inputKey(all[3].ID))
	if _, err := Export(t.Context(), dir, io.Discard, ArchiveOptions{}); !errors.Is(err, blob.ErrDamaged) ||
		!strings.Contains(err.Error(), all[3].ID) {
		t.Errorf("a damaged input: %v", err)
	}
	flip(t, dir, inputKey(all[3].ID))
	if err := os.WriteFile(filepath.Join(dir, importingFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, opens := OpenData(t.Context(), dir, true, Options{})
	_, checks := CheckData(t.Context(), dir, Options{})
	for _, err := range []error{opens, checks} {
		if err == nil || !strings.Contains(err.Error(), "has not ended") {
			t.Errorf("after an interrupted import: %v", err)
		}
	}
	toNATS := ArchiveOptions{Options: Options{NATS: &NATS{}}}
	if _, err := Import(t.Context(), t.TempDir(), bytes.NewReader(archive), toNATS); err == nil {
		t.Error("imported into NATS")
	}
}
