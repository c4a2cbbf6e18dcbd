package tasks

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/stream/coded"
)

// input returns the stored input of a task.
func (r *rig) input(id string) string {
	r.t.Helper()
	t, err := r.Get(id)
	if err != nil {
		r.t.Fatal(err)
	}
	in, err := r.Input(r.t.Context(), t)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	b, err := io.ReadAll(in)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// hasFolder reports whether a task has a folder of files.
func hasFolder(t *testing.T, dir, id string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(dir, "files", filepath.FromSlash(folder(id))))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return err == nil
}

// TestSmall: an input and a result of up to 4 KiB are in the record, larger ones are files, and both stay over changes
// of the task and restarts.
func TestSmall(t *testing.T) {
	dir := t.TempDir()
	d := openData(t, dir)
	r := &rig{Store: d.Store, t: t}
	large := strings.Repeat("x", maxSmall+1)
	inputs := map[string]string{}
	for _, text := range []string{"", "hello", large[:maxSmall-1], large[:maxSmall], large} {
		task := r.submit(Task{Model: "m"}, text)
		if _, err := r.Cancel(t.Context(), task.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Retry(t.Context(), task.ID, nil); err != nil {
			t.Fatal(err)
		}
		inputs[task.ID] = text
	}
	check := func(finished bool) {
		t.Helper()
		for id, text := range inputs {
			if got := r.input(id); got != text {
				t.Errorf("the input of %d bytes has %d", len(text), len(got))
			}
			if finished && r.result(id) != text+"!" {
				t.Errorf("the result of an input of %d bytes has %d", len(text), len(r.result(id)))
			}
			if want := len(text) > maxSmall || finished && len(text)+1 > maxSmall; hasFolder(t, dir, id) != want {
				t.Errorf("an input of %d bytes has files: %v", len(text), !want)
			}
		}
	}
	reopen := func() {
		t.Helper()
		d.Close()
		d = openData(t, dir)
		r.Store = d.Store
	}
	check(false)
	reopen()
	check(false)
	for range inputs {
		if err := finish(t, claim(t, d.Store)); err != nil {
			t.Fatal(err)
		}
	}
	check(true)
	d.recent = recentContents{}
	check(true)
	reopen()
	check(true)
	d.Close()
	if report, err := CheckData(t.Context(), dir, Options{}); err != nil || len(report.Problems) > 0 ||
		report.Files != 2*len(inputs) {
		t.Errorf("the check: %+v, %v", report, err)
	}
	d, _ = lostStream(t, dir)
	r.Store = d.Store
	check(true)
}

// TestFormat: the first start that may keep contents in records makes a folder unreadable for programs that know files
// alone. Tasks with files stay.
func TestFormat(t *testing.T) {
	dir := t.TempDir()
	version := func(want int) {
		t.Helper()
		if got, err := checkVersion(dir); got != want || err != nil {
			t.Errorf("form %d, want %d: %v", got, want, err)
		}
	}
	d := openWith(t, dir, Options{blobs: true})
	r := &rig{Store: d.Store, t: t}
	done := r.submit(Task{Model: "m"}, "first")
	if err := finish(t, claim(t, d.Store)); err != nil {
		t.Fatal(err)
	}
	waits := r.submit(Task{Model: "m"}, "second")
	d.Close()
	version(formatFiles)
	d = openData(t, dir)
	r.Store = d.Store
	version(formatSmall)
	if err := finish(t, claim(t, d.Store)); err != nil {
		t.Fatal(err)
	}
	if r.result(done.ID) != "first!" || r.result(waits.ID) != "second!" {
		t.Errorf("the results: %q, %q", r.result(done.ID), r.result(waits.ID))
	}
	d.Close()
	openWith(t, dir, Options{blobs: true}).Close()
	version(formatSmall)
}

// TestSmallRemote: a consumer whose requests each resume the claim gets the input, and its small result is stored.
func TestSmallRemote(t *testing.T) {
	dir := t.TempDir()
	d := openData(t, dir)
	r := &rig{Store: d.Store, t: t}
	task := r.submit(Task{Model: "m"}, "hello")
	now, err := d.ClaimRemote(t.Context(), "far", "key", func(string) bool { return true })
	if err != nil || now.ID != task.ID {
		t.Fatalf("%+v, %v", now, err)
	}
	d.recent = recentContents{} // as after a restart
	c, err := d.ResumeClaim(t.Context(), task.ID, 1, "key")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Renew(); err != nil {
		t.Fatal(err)
	}
	if err := finish(t, c); err != nil {
		t.Fatal(err)
	}
	if r.input(task.ID) != "hello" || r.result(task.ID) != "hello!" || hasFolder(t, dir, task.ID) {
		t.Errorf("input %q, result %q, files %v", r.input(task.ID), r.result(task.ID), hasFolder(t, dir, task.ID))
	}
}

// TestSmallNotStored: a small result whose end was not stored is not the result of the next attempt.
func TestSmallNotStored(t *testing.T) {
	d := openData(t, t.TempDir())
	r := &rig{Store: d.Store, t: t}
	task := r.submit(Task{Model: "m"}, "hello")
	if _, err := d.ClaimRemote(t.Context(), "far", "key", func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	c, err := d.ResumeClaim(t.Context(), task.ID, 1, "key")
	if err != nil {
		t.Fatal(err)
	}
	own := d.kv.(boundedKV).KeyValue.(*ownBucket)
	own.tried, own.failure = time.Now().Add(time.Hour), errors.New("no disk")
	own.broken.Store(true)
	if err := finish(t, c); !errors.Is(err, own.failure) {
		t.Errorf("without a disk: %v", err)
	}
	own.broken.Store(false)
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
	d.recent = recentContents{} // as after a restart
	next := claim(t, d.Store)
	out, err := next.Create()
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", maxSmall+1)
	_, _ = io.WriteString(out, large)
	info, err := out.Commit()
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Finish(File{Info: info}); err != nil {
		t.Fatal(err)
	}
	if got := r.result(task.ID); got != large {
		t.Errorf("the result has %d bytes", len(got))
	}
}

// TestEmptyResult: the loss of the records loses no task without bytes of a result.
func TestEmptyResult(t *testing.T) {
	dir := t.TempDir()
	d := openData(t, dir)
	r := &rig{Store: d.Store, t: t}
	inputs := []string{"", "hello", strings.Repeat("x", maxSmall+1)}
	var ids []string
	for _, text := range inputs {
		ids = append(ids, r.submit(Task{Model: "m"}, text).ID)
		c := claim(t, d.Store)
		out, err := c.Create()
		if err != nil {
			t.Fatal(err)
		}
		info, err := out.Commit()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Finish(File{Info: info}); err != nil {
			t.Fatal(err)
		}
	}
	d.Close()
	d, log := lostStream(t, dir)
	r.Store = d.Store
	for i, id := range ids {
		if got := r.result(id); got != "" || r.input(id) != inputs[i] {
			t.Errorf("the result is %q, the input has %d bytes", got, len(r.input(id)))
		}
	}
	if strings.Contains(log, "damaged") {
		t.Errorf("the log: %s", log)
	}
}

// TestSmallLog: the log of a task whose input is in the record makes the folder of the task, and the log of a deleted
// task makes none.
func TestSmallLog(t *testing.T) {
	dir := t.TempDir()
	d := openData(t, dir)
	r := &rig{Store: d.Store, t: t}
	task := r.submit(Task{Model: "m"}, "hello")
	c := claim(t, d.Store)
	log := c.Log()
	_, _ = io.WriteString(log, "a line\n")
	if err := finish(t, c); err != nil {
		t.Fatal(err)
	}
	if got := r.logs(task.ID); got != "a line\n" {
		t.Errorf("the log: %q", got)
	}
	if now, _ := r.Get(task.ID); now.LogBytes != 7 {
		t.Errorf("%d bytes of logs", now.LogBytes)
	}
	if err := d.Delete(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(log, "late\n")
	if hasFolder(t, dir, task.ID) {
		t.Error("the log of a deleted task has made files")
	}
}

// TestRecentContents: the memory of contents has a bound, and keeps the newest.
func TestRecentContents(t *testing.T) {
	var r recentContents
	data := make([]byte, 1000)
	for range 2 * maxRecent / len(data) {
		r.put(newID(time.Now()), contents{InputData: data})
	}
	last := Task{ID: newID(time.Now()), inputSmall: true}
	r.put(last.ID, contents{InputData: data})
	r.put(last.ID, contents{InputData: data, ResultData: data})
	if _, ok := r.get(&last); !ok || r.bytes > maxRecent || len(r.ids) != len(r.known) ||
		len(r.ids) < maxRecent/2/len(data) {
		t.Errorf("the newest: %v; %d bytes of %d tasks, %d ids", ok, r.bytes, len(r.known), len(r.ids))
	}
	r.put("other", contents{InputData: data})
	if _, ok := r.get(&Task{ID: "other", inputSmall: true, resultSmall: true}); ok {
		t.Error("contents without the result")
	}
}

// finishedText returns the file with the record of a finished task.
func finishedText(t *testing.T, dir, id string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "files", filepath.FromSlash(finishedKey(id))))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestFinishedLog: after the loss of the records, small results are restored from the lines of finished tasks, but
// deleted tasks and damaged lines are not. The start writes missing lines, and marks tasks whose deletion was
// interrupted.
func TestFinishedLog(t *testing.T) {
	dir := t.TempDir()
	d := openData(t, dir)
	r := &rig{Store: d.Store, t: t}
	files := map[string]bool{}
	ended := func(key string) Task {
		t.Helper()
		task := r.submit(Task{Model: "m", Owner: "eva", Key: key}, "input of "+key)
		for ; files[finishedKey(task.ID)]; task = r.submit(Task{Model: "m", Owner: "eva", Key: key}, "input of "+key) {
			if err := d.Delete(t.Context(), task.ID); err != nil { // the file has another of the tasks
				t.Fatal(err)
			}
		}
		files[finishedKey(task.ID)] = true
		if err := finish(t, claim(t, d.Store)); err != nil {
			t.Fatal(err)
		}
		return task
	}
	kept, deleted, damaged, cut, missing, half := ended("kept"), ended("deleted"), ended("damaged"), ended("cut"),
		ended("missing"), ended("half")
	if err := d.Delete(t.Context(), deleted.ID); err != nil {
		t.Fatal(err)
	}
	if err := d.kv.Purge(t.Context(), taskPrefix+half.ID); err != nil { // and the process ends
		t.Fatal(err)
	}
	d.Close()
	change := func(id string, f func(text string) string) {
		t.Helper()
		name := filepath.Join(dir, "files", filepath.FromSlash(finishedKey(id)))
		if err := os.WriteFile(name, []byte(f(finishedText(t, dir, id))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change(missing.ID, func(string) string { return "\n{\"id\":\"" })
	openData(t, dir).Close()
	if !strings.Contains(finishedText(t, dir, half.ID), "\n"+deletedMark+half.ID) {
		t.Errorf("the interrupted deletion: %s", finishedText(t, dir, half.ID))
	}
	change(damaged.ID, func(text string) string {
		return strings.Replace(text, `"result_data":"`, `"result_data":"AAAA`, 1)
	})
	change(cut.ID, func(text string) string { return text[:len(text)-5] })
	before, _ := os.ReadFile(filepath.Join(dir, "files", filepath.FromSlash(finishedKey(kept.ID))))

	d, log := lostStream(t, dir)
	r.Store = d.Store
	for _, task := range []Task{kept, missing} {
		if got := r.result(task.ID); got != "input of "+task.Key+"!" || r.input(task.ID) != "input of "+task.Key {
			t.Errorf("%s: %q", task.Key, got)
		}
	}
	for _, task := range []Task{deleted, damaged, cut, half} {
		if _, err := d.Get(task.ID); coded.CodeOf(err) != coded.NotFound {
			t.Errorf("%s: %v", task.Key, err)
		}
	}
	if !strings.Contains(log, "restored=2") || !strings.Contains(log, "damaged") {
		t.Errorf("the log: %s", log)
	}
	if now := finishedText(t, dir, kept.ID); !bytes.HasPrefix([]byte(now), before) {
		t.Errorf("the file was changed: %q, before %q", now, before)
	}
}

// TestFinishedLogIsShortened: lines of deleted tasks do not stay for ever.
func TestFinishedLogIsShortened(t *testing.T) {
	dir := t.TempDir()
	d := openData(t, dir)
	r := &rig{Store: d.Store, t: t}
	task := r.submit(Task{Model: "m"}, "x")
	if err := finish(t, claim(t, d.Store)); err != nil {
		t.Fatal(err)
	}
	other := strings.Repeat("0", 30) + task.ID[30:]
	for range 3 * finishedSlack {
		d.logFinished(t.Context(), other, []byte(`{"id":"`+other+`"}`), 1)
		d.logFinished(t.Context(), other, []byte(deletedMark+other), -1)
	}
	text := finishedText(t, dir, task.ID)
	if n := strings.Count(text, "\n"); n > finishedSlack+4 || !strings.Contains(text, task.ID) {
		t.Errorf("%d lines, with the task: %v", n, strings.Contains(text, task.ID))
	}
	d.Close()
	d, _ = lostStream(t, dir)
	if list, _ := d.List(Query{Limit: 10}); len(list) != 1 || list[0].ID != task.ID {
		t.Errorf("restored: %+v", list)
	}
}

// TestFinishedLogForgetsDeleted: the contents of a deleted task leave the file without further tasks, and other tasks
// stay.
func TestFinishedLogForgetsDeleted(t *testing.T) {
	dir := t.TempDir()
	d := openData(t, dir)
	r := &rig{Store: d.Store, t: t}
	kept, deleted := r.submit(Task{Model: "m"}, "x"), r.submit(Task{Model: "m", Input: File{Name: "secret"}}, "x")
	for range 2 {
		if err := finish(t, claim(t, d.Store)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Delete(t.Context(), deleted.ID); err != nil {
		t.Fatal(err)
	}
	if text := finishedText(t, dir, deleted.ID); !strings.Contains(text, "secret") {
		t.Fatalf("before: %q", text)
	}
	for range finishedFolders() {
		d.shortenNext(t.Context())
	}
	if text := finishedText(t, dir, deleted.ID); strings.Contains(text, deleted.ID) {
		t.Errorf("the deleted task: %q", text)
	}
	if text := finishedText(t, dir, kept.ID); !strings.Contains(text, kept.ID) {
		t.Errorf("the other task: %q", text)
	}
}
