package tasks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// maxSmall is the largest input or result that is in the record: a file costs several times as much as a record.
const maxSmall = 4 << 10

// contents are the small input and the small result of a task, which the bucket has and the index has not.
type contents struct {
	InputData  []byte `json:"input_data,omitempty"`
	ResultData []byte `json:"result_data,omitempty"`
}

// record is the value of a task in the bucket.
type record struct {
	Task
	contents
}

func encode(t Task, c contents) []byte {
	b := make([]byte, 0, 1024+(len(c.InputData)+len(c.ResultData))*4/3)
	b = t.appendFields(append(b, '{'))
	b = appendBytes(b, `,"input_data":`, c.InputData)
	b = appendBytes(b, `,"result_data":`, c.ResultData)
	return append(b, '}')
}

// decode returns the task and the contents of a record.
func decode(b []byte) (Task, contents, error) {
	var r record
	err := json.Unmarshal(b, &r)
	r.inputSmall, r.resultSmall = r.InputData != nil, r.ResultData != nil
	return r.Task, r.contents, err
}

// resultInRecord reports whether the task has a result whose bytes, if any, are in the record.
func (t *Task) resultInRecord() bool {
	return t.State == Finished && t.Result != nil && (t.resultSmall || t.Result.Size == 0)
}

// contents reads the contents of one revision of a task. Errors: errStale.
func (s *Store) contents(ctx context.Context, t *Task, revision uint64) (contents, error) {
	if !t.inputSmall && !t.resultSmall {
		return contents{}, nil
	}
	if c, ok := s.recent.get(t); ok {
		return c, nil
	}
	c, now, err := s.fetchContents(ctx, t.ID)
	if coded.CodeOf(err) == coded.NotFound || err == nil && now != revision {
		return contents{}, errStale
	}
	return c, err
}

// fetchContents reads the contents of a task and their revision from the bucket. Errors: NotFound.
func (s *Store) fetchContents(ctx context.Context, id string) (c contents, revision uint64, err error) {
	e, err := s.kv.Get(ctx, taskPrefix+id)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return c, 0, Missing(id)
	}
	if err != nil {
		return c, 0, unavailable(ctx, err)
	}
	_, c, err = decode(e.Value())
	return c, e.Revision(), err
}

// openStored opens the input of a task, or the result of the attempt of a finished task. Errors: NotFound.
func (s *Store) openStored(ctx context.Context, t *Task, result bool) (blob.Reader, error) {
	key, size, small := inputKey(t.ID), t.Input.Size, t.inputSmall
	if result {
		key, size, small = resultKey(t.ID, t.Attempt), t.Result.Size, t.resultSmall
	}
	switch {
	case size == 0:
		return memory{bytes.NewReader(nil)}, nil
	case !small:
		return s.blobs.Open(ctx, key)
	}
	c, ok := s.recent.get(t)
	if !ok {
		var err error
		if c, _, err = s.fetchContents(ctx, t.ID); err != nil {
			return nil, err
		}
	}
	if result {
		return memory{bytes.NewReader(c.ResultData)}, nil
	}
	return memory{bytes.NewReader(c.InputData)}, nil
}

// recentContents remembers contents: most tasks run and are read soon after the submission. The zero value is ready.
type recentContents struct {
	mu    sync.Mutex
	known map[string]contents
	ids   []string // of known, the oldest first
	bytes int
}

// maxRecent is the most bytes that recentContents remembers.
const maxRecent = 4 << 20

// recentBytes is what a task counts as, beside the contents.
const recentBytes = 256

func (c *contents) bytes() int { return len(c.InputData) + len(c.ResultData) + recentBytes }

func (r *recentContents) put(id string, c contents) {
	if c.InputData == nil && c.ResultData == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[string]contents{}
	}
	if old, ok := r.known[id]; ok {
		r.bytes -= old.bytes()
	} else {
		r.ids = append(r.ids, id)
	}
	r.known[id] = c
	for r.bytes += c.bytes(); r.bytes > maxRecent; {
		first := r.known[r.ids[0]]
		r.bytes -= first.bytes()
		delete(r.known, r.ids[0])
		r.ids = r.ids[1:]
	}
}

// get returns the contents of a task, when all are known.
func (r *recentContents) get(t *Task) (contents, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.known[t.ID]
	return c, ok && (c.InputData != nil || !t.inputSmall) && (c.ResultData != nil || !t.resultSmall)
}

// memory reads a small input or result.
type memory struct{ *bytes.Reader }

// Close implements io.Closer.
func (memory) Close() error { return nil }

// create begins an input or a result, whose bytes stay in memory while the bytes are few, and the Store keeps small
// contents in the record.
func (s *Store) create(ctx context.Context, key string, file bool) (*storedWriter, error) {
	w := &storedWriter{ctx: ctx, key: key, of: s,
		create: func() (blob.Writer, error) { return s.blobs.Create(ctx, key) }}
	if s.files != nil && !file {
		return w, nil
	}
	return w, w.open()
}

// storedWriter writes an input or a result.
type storedWriter struct {
	create func() (blob.Writer, error)
	ctx    context.Context
	file   blob.Writer // nil = all bytes are in data
	data   []byte

	key  string
	of   *Store
	sums partSummer
}

// open begins the file.
func (w *storedWriter) open() (err error) {
	if w.file, err = w.create(); err == nil && len(w.data) > 0 {
		_, err = w.file.Write(w.data)
		w.sums.add(w.data)
	}
	w.data = nil
	return err
}

// Write implements io.Writer.
func (w *storedWriter) Write(b []byte) (int, error) {
	if w.file == nil && len(w.data)+len(b) <= maxSmall {
		w.data = append(w.data, b...)
		return len(b), w.ctx.Err()
	}
	if w.file == nil {
		if err := w.open(); err != nil {
			return 0, err
		}
	}
	n, err := w.file.Write(b)
	w.sums.add(b[:n])
	return n, err
}

// Fill implements blob.Writer.
func (w *storedWriter) Fill(fill func(path string, room func() error) error) error {
	if w.file == nil {
		if err := w.open(); err != nil {
			return err
		}
	}
	w.sums.unknown = true
	return w.file.Fill(fill)
}

// Commit implements blob.Writer.
func (w *storedWriter) Commit() (blob.Info, error) {
	if w.file != nil {
		info, err := w.file.Commit()
		if err == nil && info.Size > partSize && !w.sums.unknown {
			w.of.remember(w.ctx, w.key, w.sums.end())
		}
		return info, err
	}
	return infoOf(w.data), w.ctx.Err()
}

// Discard implements blob.Writer.
func (w *storedWriter) Discard() {
	if w.file != nil {
		w.file.Discard()
	}
}
