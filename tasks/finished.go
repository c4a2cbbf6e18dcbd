package tasks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"strings"
	"sync"

	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// finishedName is the name of the files with the records of finished tasks whose result is no file: as
// recordName, but of many tasks, since a line costs a hundredth of a file. A file has the tasks whose ids end with the
// two digits of its folder. The newest line of a task counts; deletedMark before an id is the line of a deletion.
// Lines begin with a line break: a line that a power failure has cut off damages no other line.
const (
	finishedName = "finished"
	deletedMark  = "-"
)

// finishedSlack is the number of lines without use from which a file is written anew at once. Each 43 minutes, Run
// removes the lines without use of all files: see shortenNext.
const finishedSlack = 1000

// finishedLog writes the files with finishedName.
type finishedLog struct {
	mu    sync.Mutex
	files map[string]*finishedFile // by the digits
	next  int                      // of finishedFolders, for shortenNext
}

// finishedFile counts the lines of a file.
type finishedFile struct {
	mu    sync.Mutex // held while the file grows or is written anew
	out   *os.File   // nil = not open
	lines int
	live  int // of tasks that are there
}

func (l *finishedLog) file(id string) *finishedFile {
	l.mu.Lock()
	defer l.mu.Unlock()
	digits := id[len(id)-2:]
	f := l.files[digits]
	if f == nil {
		f = &finishedFile{}
		if l.files == nil {
			l.files = map[string]*finishedFile{}
		}
		l.files[digits] = f
	}
	return f
}

// close closes the files. Later lines open a file again.
func (l *finishedLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.files {
		f.mu.Lock()
		_ = f.close() // the lines are with the system already
		f.mu.Unlock()
	}
}

// close closes the file. The caller holds mu.
func (f *finishedFile) close() error {
	if f.out == nil {
		return nil
	}
	out := f.out
	f.out = nil
	return out.Close()
}

// append adds text to the file, which stays open: opening costs several times as much as the line. The caller holds mu.
func (f *finishedFile) append(files *blob.Files, key string, text []byte) (err error) {
	if f.out == nil {
		if f.out, err = files.OpenAppend(key); err != nil {
			return err
		}
	}
	_, err = f.out.Write(text)
	return err
}

func finishedKey(id string) string { return id[len(id)-2:] + "/" + finishedName }

// logFinished writes the line of a finished task, or of a deleted one. The line is not synced: the next start writes a
// missing line again.
func (s *Store) logFinished(ctx context.Context, id string, line []byte, live int) {
	f, key := s.finished.file(id), finishedKey(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.append(s.files, key, append([]byte("\n"), line...))
	f.lines, f.live = f.lines+1, f.live+live
	if err == nil && f.lines > 2*f.live+finishedSlack {
		err = s.shortenFinished(ctx, key, f)
	}
	if err != nil {
		s.opts.Log.Warn("the file with the records of finished tasks cannot be written: the next start tries again",
			"task", id, "error", err)
	}
}

// readFinished returns the newest lines of the tasks in a file with the number of all lines. A missing file has none.
func readFinished(ctx context.Context, from blob.Store, key string) (found map[string][]byte, lines int, err error) {
	r, err := from.Open(ctx, key)
	if coded.CodeOf(err) == coded.NotFound {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	text, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, 0, err
	}
	found = map[string][]byte{}
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		lines++
		if id, ok := strings.CutPrefix(string(line[:min(len(line), len(deletedMark)+32)]), deletedMark); ok {
			delete(found, id)
			continue
		}
		id, ok := bytes.CutPrefix(line, []byte(`{"id":"`))
		if ok && len(id) > 32 && line[len(line)-1] == '}' {
			found[string(id[:32])] = line
		}
	}
	return found, lines, nil
}

// shortenFinished writes a file anew, without the lines of deleted tasks. The caller holds f.mu.
func (s *Store) shortenFinished(ctx context.Context, key string, f *finishedFile) error {
	found, _, err := readFinished(ctx, s.files, key)
	if err != nil {
		return err
	}
	w, err := s.files.Create(ctx, key)
	if err != nil {
		return err
	}
	defer w.Discard()
	lines := 0
	for id, line := range found {
		if t, failed := s.Get(id); failed != nil || !t.resultInRecord() {
			continue
		}
		lines++
		if _, err := w.Write(append([]byte("\n"), line...)); err != nil {
			return err
		}
	}
	if err := f.close(); err != nil { // before another file takes the name
		return err
	}
	if _, err = w.Commit(); err == nil {
		f.lines, f.live = lines, lines
	}
	return err
}

// shortenNext removes the lines without use of the next of the files.
func (s *Store) shortenNext(ctx context.Context) {
	if s.files == nil {
		return
	}
	folders := finishedFolders()
	s.finished.mu.Lock()
	digits := folders[s.finished.next%len(folders)]
	s.finished.next++
	s.finished.mu.Unlock()
	f, key := s.finished.file(digits), finishedKey(digits)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lines == f.live {
		return
	}
	if err := s.shortenFinished(ctx, key, f); err != nil && ctx.Err() == nil {
		s.opts.Log.Warn("the file with the records of finished tasks cannot be written: trying again later",
			"file", key, "error", err)
	}
}

// finishedFolders returns the folders of the first level.
func finishedFolders() []string {
	const digits = "0123456789abcdef"
	var all []string
	for _, a := range digits {
		for _, b := range digits {
			all = append(all, string(a)+string(b))
		}
	}
	return all
}

// matchFinished compares the files with the records: finished tasks without a line get one, and lines of deleted tasks
// are marked.
func (s *Store) matchFinished(ctx context.Context) error {
	missing := map[string]map[string]bool{} // by the digits
	s.mu.Lock()
	for id, e := range s.index.tasks {
		if !e.resultInRecord() {
			continue
		}
		digits := id[len(id)-2:]
		if missing[digits] == nil {
			missing[digits] = map[string]bool{}
		}
		missing[digits][id] = true
	}
	s.mu.Unlock()
	for _, digits := range finishedFolders() {
		found, lines, err := readFinished(ctx, s.files, finishedKey(digits))
		if err != nil {
			return err
		}
		f := s.finished.file(digits)
		f.mu.Lock()
		f.lines, f.live = lines, len(found)
		f.mu.Unlock()
		for id := range found {
			if !missing[digits][id] {
				s.logFinished(ctx, id, []byte(deletedMark+id), -1)
			}
			delete(missing[digits], id)
		}
		for id := range maps.Keys(missing[digits]) {
			s.rewriteFinished(ctx, id)
		}
	}
	return nil
}

// rewriteFinished writes the record of a finished task beside the bucket.
func (s *Store) rewriteFinished(ctx context.Context, id string) {
	t, revision, err := s.refresh(ctx, id)
	var c contents
	if err == nil {
		c, err = s.contents(ctx, &t, revision)
	}
	if err != nil {
		s.opts.Log.Warn("the record of a finished task cannot be read", "task", id, "error", err)
		return
	}
	s.writeFinished(ctx, t, encode(t, c))
}

// restoreFinished makes the missing records of the tasks in the files, and returns how many.
func (d *Data) restoreFinished(ctx context.Context) (restored int, err error) {
	if d.Store.files == nil {
		return 0, nil
	}
	for _, digits := range finishedFolders() {
		found, _, err := readFinished(ctx, d.Store.files, finishedKey(digits))
		if err != nil {
			return restored, err
		}
		for id, line := range found {
			if _, err := d.Get(id); err == nil {
				continue
			}
			t, c, err := decodeFinished(id, line)
			if err != nil {
				d.opts.Log.Warn("the record of a finished task is damaged", "task", id, "error", err)
				continue
			}
			if err := d.restoreTask(ctx, t, c); err != nil {
				return restored, err
			}
			restored++
		}
	}
	return restored, nil
}

// decodeFinished returns the task of a line.
func decodeFinished(id string, line []byte) (Task, contents, error) {
	t, c, err := decode(line)
	if err == nil && (t.ID != id || t.State != Finished || t.Result == nil) {
		err = coded.Errorf(coded.Internal, "", "the line is not the record of a finished task")
	}
	if err == nil && infoOf(c.ResultData) != t.Result.Info {
		err = blob.Damaged(infoOf(c.ResultData), t.Result.Info)
	}
	return t, c, err
}
