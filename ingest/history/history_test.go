package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/internal/filelock"
	"millrace/stream/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a history without its goroutine. Write writes what waits.
func open(t testing.TB, o Options) *History {
	t.Helper()
	h := New(o)
	h.now = func() time.Time { return begun }
	h.Open()
	t.Cleanup(h.end)
	return h
}

var begun = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)

func (h *History) writeAll() {
	for h.write() {
	}
}

// put adds an event a second after the last, as "id stream type rule class".
func put(t testing.TB, h *History, text string) {
	t.Helper()
	f := strings.Fields(text)
	v := rules.Event{ID: f[0], Stream: f[1], Type: rules.EventType(f[2]), Rule: f[3], Class: f[4], Tracks: []int64{7}}
	line, err := json.Marshal(&v)
	if err != nil {
		t.Fatal(err)
	}
	h.Add("people", &v, line)
	at := h.now().Add(time.Second)
	h.now = func() time.Time { return at }
}

// ids returns the ids of all pages.
func ids(t testing.TB, h *History, q Query) string {
	t.Helper()
	var out []string
	for {
		page, next, err := h.Events(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page {
			out = append(out, page[i].ID)
		}
		if next == "" || q.Oldest && len(page) == 0 {
			return strings.Join(out, " ")
		}
		q.After = next
	}
}

func TestPagesAndFilters(t *testing.T) {
	h := open(t, Options{Folder: t.TempDir()})
	for _, text := range []string{"a gate cross door person", "b gate enter yard car", "c back cross door person",
		"d gate cross door car", "e back leave yard person"} {
		put(t, h, text)
	}
	put(t, h, "b gate enter yard car") // delivered again
	h.writeAll()
	for _, test := range []struct {
		q    Query
		want string
	}{
		{Query{}, "e d c b a"},
		{Query{Oldest: true}, "a b c d e"},
		{Query{Stream: "gate"}, "d b a"},
		{Query{Stream: "gate", Type: "cross"}, "d a"},
		{Query{Rule: "yard"}, "e b"},
		{Query{Class: "car", Rule: "door"}, "d"},
		{Query{Stream: "none"}, ""},
		{Query{From: begun.Add(time.Second), To: begun.Add(3 * time.Second)}, "c b"},
		{Query{Stream: "x' OR 1=1 --"}, ""},
	} {
		for limit := 1; limit < 7; limit++ {
			test.q.Limit = limit
			if got := ids(t, h, test.q); got != test.want {
				t.Errorf("%+v: %q, want %q", test.q, got, test.want)
			}
		}
	}
	page, next, err := h.Events(t.Context(), Query{Limit: 1, Oldest: true})
	if err != nil || page[0].Model != "people" || !page[0].Time.Equal(begun) || page[0].Tracks[0] != 7 {
		t.Errorf("%+v, %v", page, err)
	}
	for _, wrong := range []string{"x", "-", "1-", "-1", next + "0x"} {
		if _, _, err := h.Events(t.Context(), Query{After: wrong, Limit: 1}); err == nil ||
			!strings.Contains(err.Error(), "after") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if st := h.Stats(); st.Written != 6 || st.Lost != 0 || st.Waiting != 0 || st.Err != nil {
		t.Errorf("%+v", st)
	}
}

// Events added later come later, also when the clock goes back: a reader that follows misses none.
func TestAClockThatGoesBack(t *testing.T) {
	o := Options{Folder: t.TempDir()}
	h := open(t, o)
	put(t, h, "a gate cross door person")
	put(t, h, "b gate cross door person")
	h.writeAll()
	_, next, err := h.Events(t.Context(), Query{Oldest: true, Limit: 9})
	if err != nil {
		t.Fatal(err)
	}
	h.end()
	h = open(t, o)
	for i, name := range []string{"c", "d"} { // by an hour each
		h.now = func() time.Time { return begun.Add(time.Duration(-1-i) * time.Hour) }
		put(t, h, name+" gate cross door person")
	}
	h.writeAll()
	if got := ids(t, h, Query{Oldest: true, Limit: 1, Stream: "gate", After: next}); got != "c d" {
		t.Error(got)
	}
	if got := ids(t, h, Query{Oldest: true, Limit: 3}); got != "a b c d" {
		t.Error(got)
	}
}

// A reader that follows rare events does not read the others again.
func TestThePlaceAfterOtherEvents(t *testing.T) {
	h := open(t, Options{Folder: t.TempDir()})
	put(t, h, "a gate cross door person")
	put(t, h, "b back cross door person")
	h.writeAll()
	_, all, _ := h.Events(t.Context(), Query{Oldest: true, Limit: 2})
	for _, q := range []Query{{Stream: "gate"}, {Stream: "none"}, {Stream: "gate", From: begun.Add(time.Hour)}} {
		q.Oldest, q.Limit = true, 2
		if _, next, err := h.Events(t.Context(), q); next != all || all == "" || err != nil {
			t.Errorf("%+v: %q, want %q, %v", q, next, all, err)
		}
	}
	if _, next, err := h.Events(t.Context(), Query{Oldest: true, Limit: 2, After: all}); next != all || err != nil {
		t.Errorf("at the end: %q, want %q, %v", next, all, err)
	}
}

func TestStatesSurvive(t *testing.T) {
	o := Options{Folder: t.TempDir()}
	state := func(h *History, name, model, want string) {
		t.Helper()
		if got, err := h.State(name, model); string(got) != want || err != nil {
			t.Errorf("%s of %s: %q, %v, want %q", model, name, got, err, want)
		}
	}
	h := open(t, o)
	h.SetState("gate", "people", []byte("1"))
	h.SetState("gate", "cars", []byte("2"))
	h.SetState("back", "people", []byte("3"))
	state(h, "gate", "people", "1")
	h.writeAll()
	h.SetState("gate", "people", []byte("4"))
	state(h, "gate", "people", "4")
	h.Forget("back")
	state(h, "back", "people", "")
	h.writeAll()
	h.end()

	h = open(t, o)
	state(h, "gate", "people", "4")
	state(h, "gate", "cars", "2")
	state(h, "back", "people", "")
	h.Forget("gate")
	h.SetState("gate", "cars", []byte("5")) // the stream is added again
	state(h, "gate", "people", "")
	h.writeAll()
	state(h, "gate", "people", "")
	state(h, "gate", "cars", "5")
}

func TestRetention(t *testing.T) {
	h := open(t, Options{Folder: t.TempDir(), MaxBytes: 1 << 20, Retention: time.Hour})
	put(t, h, "old gate cross door person")
	h.now = func() time.Time { return begun.Add(time.Hour) }
	put(t, h, "new gate cross door person")
	h.writeAll()
	h.remove(begun.Add(time.Hour + time.Second))
	if got := ids(t, h, Query{Limit: 9}); got != "new" {
		t.Errorf("after an hour: %q", got)
	}
	for i := range removeStep {
		put(t, h, fmt.Sprintf("n%d gate cross door person", i))
	}
	h.writeAll()
	h.o.Retention = 1000 * time.Hour
	size := func() int64 {
		t.Helper()
		info, err := os.Stat(filepath.Join(h.o.Folder, fileName))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	steps := 1
	for h.remove(begun) {
		steps++
	}
	got := strings.Fields(ids(t, h, Query{Limit: MaxLimit}))
	if n := len(got); n < removeStep/2 || n == removeStep || got[0] != fmt.Sprintf("n%d", removeStep-1) {
		t.Errorf("%d events, the newest %v", n, got[:1])
	}
	if n := h.Stats().Bytes; steps > 9 || n > 1<<20 || n < 1<<19 || n != size() {
		t.Errorf("%d bytes after %d steps, in the file %d", n, steps, size())
	}
	h.o.MaxBytes = 1 << 18 // lowered
	for h.remove(begun) {
	}
	if n := size(); n > 1<<18 || n < 1<<17 {
		t.Errorf("%d bytes in the file after the size was lowered", n)
	}
}

// A round of removals is short: writes and the end of the server come between.
func TestRemovalsBySteps(t *testing.T) {
	h := open(t, Options{Folder: t.TempDir()})
	for i := range removeStep + 1 {
		put(t, h, fmt.Sprintf("n%d gate cross door person", i))
	}
	h.writeAll()
	h.write() // the last
	later := begun.Add(1000 * time.Hour)
	if more := h.remove(later); !more || ids(t, h, Query{Limit: 9}) != fmt.Sprintf("n%d", removeStep) {
		t.Errorf("more %v, %q", more, ids(t, h, Query{Limit: 9}))
	}
	if more := h.remove(later); more || ids(t, h, Query{Limit: 9}) != "" {
		t.Errorf("more %v, %q", more, ids(t, h, Query{Limit: 9}))
	}
}

// Reads hold up no event, no state and no write, and reads beyond a bound are refused.
func TestReadsHoldUpNothing(t *testing.T) {
	h := open(t, Options{Folder: t.TempDir()})
	put(t, h, "a gate cross door person")
	h.SetState("gate", "people", []byte("1"))
	h.writeAll()
	for range maxReads {
		rows, err := h.db.reads.Query("SELECT 1 FROM events")
		if err != nil || !rows.Next() {
			t.Fatal(err)
		}
		defer rows.Close()
		h.reads <- struct{}{}
	}
	put(t, h, "b gate cross door person")
	h.writeAll()
	if got, err := h.State("gate", "people"); string(got) != "1" || err != nil || h.Stats().Written != 2 {
		t.Errorf("%q, %v, %+v", got, err, h.Stats())
	}
	if _, _, err := h.Events(t.Context(), Query{Limit: 1}); err != errBusy {
		t.Error(err)
	}
	<-h.reads
	h.db.reads.SetMaxOpenConns(maxReads + 1)
	if got := ids(t, h, Query{Limit: 9}); got != "b a" {
		t.Error(got)
	}
}

// A state waits for a slow writer within a bound, and a page does not wait.
func TestASlowWriter(t *testing.T) {
	h := open(t, Options{Folder: t.TempDir()})
	h.stateTime = 10 * time.Millisecond
	tx, err := h.db.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if got, err := h.State("gate", "people"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%q, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, _, err := h.Events(ctx, Query{Limit: 1}); err != nil {
		t.Errorf("a read waits for the writer: %v", err)
	}
}

// A removal of a stream during a failed write stays in force, and states being written are found.
func TestStatesOfAFailedWrite(t *testing.T) {
	h := open(t, Options{Folder: t.TempDir()})
	h.SetState("gate", "people", []byte("old"))
	h.SetState("back", "people", []byte("kept"))
	tx, err := h.db.db.Begin() // the write waits
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("CREATE TRIGGER no BEFORE INSERT ON states BEGIN SELECT RAISE(ABORT, 'no'); END"); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); h.write() }()
	for taken := false; !taken; runtime.Gosched() {
		h.mu.Lock()
		taken = h.taken != nil
		h.mu.Unlock()
	}
	if got, err := h.State("gate", "people"); string(got) != "old" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	h.Forget("gate")
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	<-done
	h.Open()
	if _, err := h.db.db.Exec("DROP TRIGGER no"); err != nil {
		t.Fatal(err)
	}
	h.writeAll()
	for name, want := range map[string]string{"gate": "", "back": "kept"} {
		if got, err := h.State(name, "people"); string(got) != want || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// The log has one line for the beginning of a failure, and a line for the end.
func TestAFullDiskInTheLog(t *testing.T) {
	log := new(bytes.Buffer)
	h := open(t, Options{Folder: t.TempDir(), Log: slog.New(slog.NewTextHandler(log, nil))})
	for i := range 500 {
		put(t, h, fmt.Sprintf("a%d gate cross door person", i))
	}
	for range 3 {
		if _, err := h.db.db.Exec("PRAGMA max_page_count = 8"); err != nil {
			t.Fatal(err)
		}
		h.writeAll()
		h.Open()
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines: %s", n, log)
	}
	h.writeAll()
	if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "works again") {
		t.Errorf("%d lines: %s", n, log)
	}
}

func TestADamagedDatabase(t *testing.T) {
	log := new(bytes.Buffer)
	o := Options{Folder: t.TempDir(), Log: slog.New(slog.NewTextHandler(log, nil))}
	file := filepath.Join(o.Folder, fileName)
	if err := os.WriteFile(file, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	h := open(t, o)
	put(t, h, "a gate cross door person")
	h.writeAll()
	if got := ids(t, h, Query{Limit: 9}); got != "a" || !strings.Contains(log.String(), "is damaged") {
		t.Errorf("%q, log %s", got, log)
	}
	for i := range 5000 {
		put(t, h, fmt.Sprintf("b%d gate cross door person", i))
	}
	h.writeAll()
	h.end()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := 8192; i < len(text); i++ { // behind the first pages: noticed when it is used
		text[i] = 0xA5
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	h = open(t, o)
	if _, _, err := h.Events(t.Context(), Query{Limit: MaxLimit}); err == nil ||
		!strings.Contains(err.Error(), "data") {
		t.Errorf("%v", err)
	}
	lock, err := os.OpenFile(filepath.Join(o.Folder, lockName), os.O_RDWR, 0o600)
	if err == nil {
		err = filelock.TryLock(lock)
	}
	if err != nil {
		t.Fatal(err)
	}
	h.Open() // not yet possible: the damage is still known afterwards
	if err := filelock.Close(lock); err != nil {
		t.Fatal(err)
	}
	h.Open()
	put(t, h, "c gate cross door person")
	h.writeAll()
	if got := ids(t, h, Query{Limit: 9}); got != "c" {
		t.Errorf("%q, log %s", got, log)
	}
	if old, _ := filepath.Glob(file + ".damaged-*"); len(old) != 1 || h.Begun() != 1 {
		t.Errorf("%q", old) // the newest
	}
}

// Events wait while the database cannot be written, and are lost only beyond the bound.
func TestAFullDiskAndARemovedFolder(t *testing.T) {
	h := open(t, Options{Folder: filepath.Join(t.TempDir(), "events")})
	if _, err := h.db.db.Exec("PRAGMA max_page_count = 8"); err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		put(t, h, fmt.Sprintf("a%d gate cross door person", i))
	}
	h.writeAll()
	st := h.Stats()
	if st.Written != 0 || st.Waiting != 500 || st.Err == nil || !strings.Contains(st.Err.Error(), "full") {
		t.Errorf("a full disk: %+v", st)
	}
	if _, _, err := h.Events(t.Context(), Query{Limit: 1}); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("a full disk: %v", err)
	}
	h.Open()
	h.writeAll()
	if st := h.Stats(); st.Written != 500 || st.Waiting != 0 || st.Lost != 0 || st.Err != nil {
		t.Errorf("with room: %+v", st)
	}
	if err := os.RemoveAll(h.o.Folder); err != nil {
		t.Fatal(err)
	}
	put(t, h, "b gate cross door person")
	h.writeAll()
	if st := h.Stats(); st.Err == nil || st.Waiting != 1 {
		t.Errorf("without the folder: %+v", st)
	}
	h.Open()
	h.writeAll()
	if got := ids(t, h, Query{Limit: 9}); got != "b" {
		t.Errorf("a new folder: %q", got)
	}
}

func TestTooManyWaitingEventsAreCounted(t *testing.T) {
	h := New(Options{Folder: "/dev/null/events"})
	h.Open()
	for range maxWaiting + 5 {
		h.Add("people", &rules.Event{}, []byte("{}"))
	}
	if st := h.Stats(); st.Lost != 5 || st.Waiting != maxWaiting || st.Err == nil {
		t.Errorf("%+v", st)
	}
	h.Close()
	h.Run() // ends, and counts
	h.Add("people", &rules.Event{}, []byte("{}"))
	if st := h.Stats(); st.Lost != maxWaiting+6 || st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
}

func TestAFolderOfAnotherProcessOrVersion(t *testing.T) {
	o := Options{Folder: t.TempDir()}
	first := open(t, o)
	second := open(t, o)
	if st := second.Stats(); st.Err == nil || !strings.Contains(st.Err.Error(), "another process") {
		t.Errorf("%+v", st)
	}
	if _, err := first.db.db.Exec("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	first.end()
	second.Open()
	if st := second.Stats(); st.Err == nil || !strings.Contains(st.Err.Error(), "later version") {
		t.Errorf("%+v", st)
	}
}

func TestWithoutAFolder(t *testing.T) {
	var h *History
	h.Open()
	h.Add("people", &rules.Event{}, nil)
	h.SetState("a", "b", nil)
	h.Forget("a")
	if _, _, err := h.Events(t.Context(), Query{}); err == nil || !strings.Contains(err.Error(), "--data") {
		t.Error(err)
	}
	h.Close()
	h.Run()
}

func TestCloseWritesWhatWaits(t *testing.T) {
	o := Options{Folder: t.TempDir()}
	h := New(o)
	for i := range 2*batchSize + 1 {
		put(t, h, fmt.Sprintf("a%d gate cross door person", i))
	}
	h.SetState("gate", "people", []byte("1"))
	h.Close()
	h.Run()
	h = open(t, o)
	state, err := h.State("gate", "people")
	if n := len(strings.Fields(ids(t, h, Query{Limit: MaxLimit}))); n != 2*batchSize+1 || string(state) != "1" {
		t.Errorf("%d events, state %q, %v", n, state, err)
	}
}

func BenchmarkWrite(b *testing.B) {
	h := open(b, Options{Folder: b.TempDir()})
	n := 0
	for b.Loop() {
		for range batchSize {
			put(b, h, fmt.Sprintf("K7QWZ2M5TB4XA-%d gate cross door person", n))
			n++
		}
		h.writeAll()
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}
