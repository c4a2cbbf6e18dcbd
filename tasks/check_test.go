package tasks

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCheckData: a check finds damaged and missing files, files without a record, and lost records, and nothing in a
// sound folder; no file is changed. A folder in use, of a later version, or of no server is refused.
func TestCheckData(t *testing.T) {
	dir := t.TempDir()
	d := openWith(t, dir, Options{blobs: true})
	r := &rig{Store: d.Store, t: t}
	done := r.submit(Task{Model: "m"}, "first")
	if err := finish(t, claim(t, d.Store)); err != nil {
		t.Fatal(err)
	}
	waits := r.submit(Task{Model: "m"}, "second")
	gone := r.submit(Task{Model: "m"}, "third")
	check := func() *CheckReport {
		t.Helper()
		report, err := CheckData(t.Context(), dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	refused := func(dir, want string) {
		t.Helper()
		if _, err := CheckData(t.Context(), dir, Options{}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused(dir, "another process")
	refused(t.TempDir(), "is not the data folder")
	d.Close()
	if got := check(); got.Tasks != 3 || got.Files != 4 || got.Bytes != int64(len("first"+"first!"+"second"+"third")) ||
		len(got.Problems) != 0 {
		t.Errorf("a sound folder: %+v", got)
	}

	file := func(key string) string { return filepath.Join(dir, "files", filepath.FromSlash(key)) }
	stray := newID(time.Now())
	if err := os.MkdirAll(filepath.Dir(file(inputKey(stray))), 0o700); err != nil {
		t.Fatal(err)
	}
	for key, text := range map[string]string{resultKey(done.ID, 1): "firsT!", inputKey(waits.ID): "secon",
		inputKey(stray): "x"} {
		if err := os.WriteFile(file(key), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(file(inputKey(gone.ID))); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range check().Problems {
		got = append(got, strings.Join([]string{p.Task, p.File, p.Problem[:19]}, " "))
	}
	want := []string{
		done.ID + " files/" + resultKey(done.ID, 1) + " a stored file is da",
		waits.ID + " files/" + inputKey(waits.ID) + " a stored file is da",
		gone.ID + " files/" + inputKey(gone.ID) + " the file is missing",
		stray + " files/" + folder(stray) + " the files have no r",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}

	if err := os.RemoveAll(storeFolder(dir)); err != nil {
		t.Fatal(err)
	}
	unfinished := file(".writing/unfinished")
	if err := os.WriteFile(unfinished, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	lost := check()
	if _, err := os.Stat(unfinished); err != nil {
		t.Errorf("the check has removed an unfinished file: %v", err)
	}
	if len(lost.Problems) != 5 || lost.Problems[0].File != "jetstream" {
		t.Errorf("without the records: %+v", lost.Problems)
	}
	if i := slices.IndexFunc(lost.Problems, func(p Problem) bool { return p.Task == done.ID }); i < 0 ||
		!strings.Contains(lost.Problems[i].Next, "restores") {
		t.Errorf("the finished task: %+v", lost.Problems)
	}
	if _, err := os.Stat(storeFolder(dir)); !os.IsNotExist(err) {
		t.Errorf("the check has made the folder of the records: %v", err)
	}
	version := filepath.Join(dir, versionFile)
	if err := os.Truncate(version, 0); err != nil { // as a power failure leaves the file
		t.Fatal(err)
	}
	check()
	if text, err := os.ReadFile(version); err != nil || len(text) != 0 {
		t.Errorf("the check has written the version %q: %v", text, err)
	}
	if err := os.WriteFile(version, fmt.Append(nil, formatVersion+1), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(dir, "later version")
}

// TestCheckUploads: a check compares unfinished uploads with their descriptions, and finds what was left over. What the
// next step announces, the next start does.
func TestCheckUploads(t *testing.T) {
	dir := t.TempDir()
	d := openData(t, dir)
	begin := func(n Upload, bytes string) string {
		t.Helper()
		n.Task.Model = "m"
		u, _, err := d.CreateUpload(t.Context(), NewUpload{Upload: n})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d.uploads.part(u.Task.ID), []byte(bytes), 0o600); err != nil {
			t.Fatal(err)
		}
		return u.Task.ID
	}
	const sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // of abc
	sound := begin(Upload{Length: 5}, "abc")
	begin(Upload{Length: 3, SHA256: sum}, "abc")
	moved := begin(Upload{Length: 3}, "abc") // a kill between the moving of the input and the record
	u, err := d.uploads.get(moved)
	if err == nil {
		err = d.uploads.place(t.Context(), d.blobs, u)
	}
	if err != nil {
		t.Fatal(err)
	}
	check := func() (got []string) {
		t.Helper()
		report, err := CheckData(t.Context(), dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range report.Problems {
			got = append(got, strings.Join([]string{p.Task, p.File, p.Problem[:20]}, " "))
		}
		return got
	}
	long, wrong := begin(Upload{Length: 2}, "abc"), begin(Upload{Length: 3, SHA256: sum}, "abx")
	missing, broken, stray := begin(Upload{Length: 5}, "abc"), begin(Upload{Length: 5}, "abc"), newID(time.Now())
	d.Close()
	problem := func(id, kind, text string) string { return id + " uploads/" + id + kind + " " + text }
	file := func(name string) string { return filepath.Join(dir, "uploads", name) }
	if err := os.Remove(file(missing + ".part")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{broken + ".json": "{", stray + ".part": "x", "notes": "x"} {
		if err := os.WriteFile(file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		problem(long, ".part", "the upload has 3 byt"), problem(wrong, ".part", "a stored file is dam"),
		problem(missing, ".part", "the bytes are missin"), problem(broken, ".json", "the description is d"),
		problem(stray, ".part", "the bytes have no de"), " uploads/notes the file belongs to ",
	}
	got := check()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, kind := range []string{".part", ".json"} { // the next step of the first problem
		if err := os.Remove(file(long + kind)); err != nil {
			t.Fatal(err)
		}
	}
	d = openData(t, dir)
	d.finishUploads(t.Context())
	if _, err := d.uploads.get(sound); err != nil {
		t.Errorf("the sound upload: %v", err)
	}
	if task, err := d.Get(moved); err != nil || task.State != Queued {
		t.Errorf("the moved upload: %+v, %v", task, err)
	}
	d.Close()
	if got := check(); len(got) > 0 {
		t.Errorf("after a start: %q", got)
	}
}
