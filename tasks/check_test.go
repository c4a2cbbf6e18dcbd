package tasks

import (
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
	d := openData(t, dir)
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
	if err := os.WriteFile(version, []byte("2"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(dir, "later version")
}
