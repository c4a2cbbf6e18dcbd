package textfile

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// patience is how long Get waits for a look at the files.
const patience = 250 * time.Millisecond

// Options are the arguments of Open.
type Options[T any] struct {
	Paths   []string
	MaxSize int64         // the largest file, in bytes
	Every   time.Duration // between two looks
	Parse   func(texts [][]byte) (T, error)
	// Failed is called when the files cannot be read again and the old value stays, once for each reason; and with
	// nil when the files can be read again. Failed may be nil.
	Failed func(error)
}

// Watched is the value of files that are read again when they change. A change is accepted when the files have not
// changed for the time Settle. A Watched is safe for concurrent use.
type Watched[T any] struct {
	Options[T]

	mu      sync.Mutex
	value   T
	checked time.Time     // of the last look
	now     bool          // the next look accepts changes at once
	looking chan struct{} // closed when the running look ends; nil = none
	slow    bool          // a look is overdue: until a look ends, nobody waits for one
	fault   string        // why the files were not read at the last look

	// For the look at work.
	seen, pending []state
	changedAt     time.Time // when pending was found
	shapes        []Shape
}

// Open reads files for the first time.
func Open[T any](o Options[T]) (*Watched[T], error) {
	w := &Watched[T]{Options: o, checked: time.Now()}
	_, err := WithTimeout(2*ReadTime, strings.Join(w.Paths, ", "), func() (struct{}, error) {
		states, err := w.states()
		if err == nil {
			err = w.take(states)
		}
		return struct{}{}, err
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Get returns the value of the files, at most Every old. Get waits for the files only for a short time: if their file
// system hangs, the old value stays.
func (w *Watched[T]) Get(now time.Time) T {
	w.mu.Lock()
	if d := now.Sub(w.checked); w.looking == nil && (w.now || d < 0 || d >= w.Every) {
		w.checked, w.looking = now, make(chan struct{})
		go func(settled bool, done chan struct{}) { _ = w.look(now, settled, done) }(w.now, w.looking)
		w.now = false
	}
	looking := w.looking
	if looking == nil || w.slow {
		defer w.mu.Unlock()
		return w.value
	}
	w.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-looking:
	case <-timer.C:
		w.mu.Lock()
		first := w.looking == looking && !w.slow
		w.slow = w.slow || first
		w.mu.Unlock()
		if first {
			w.report(fmt.Errorf("%s cannot be read: the file system does not answer", strings.Join(w.Paths, ", ")))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.value
}

// Recheck makes the next Get look at the files, and accept even a change from this moment.
func (w *Watched[T]) Recheck() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = true
}

// Reread reads the files now, and returns why the old value stays.
func (w *Watched[T]) Reread() error {
	w.mu.Lock()
	busy := w.looking != nil
	looking := make(chan struct{})
	if !busy {
		w.looking, w.now = looking, false
	}
	w.mu.Unlock()
	if busy {
		w.Recheck()
		return fmt.Errorf("%s: the files are being read already", strings.Join(w.Paths, ", "))
	}
	_, err := WithTimeout(2*ReadTime, strings.Join(w.Paths, ", "), func() (struct{}, error) {
		return struct{}{}, w.look(time.Now(), true, looking)
	})
	return err
}

// Fault returns why the files could not be read at the last look, so that the value may be older than the files; "" =
// the files were read.
func (w *Watched[T]) Fault() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault
}

// look looks at the files once, in a goroutine separate from the callers of Get.
func (w *Watched[T]) look(now time.Time, settled bool, done chan struct{}) error {
	began := time.Now()
	err := w.change(now, settled)
	if !errors.Is(err, errPending) {
		w.report(err)
	}
	w.mu.Lock()
	w.looking = nil
	w.slow = w.slow && time.Since(began) > patience
	w.mu.Unlock()
	close(done)
	return err
}

// errPending means that the files have changed, and may still be written.
var errPending = errors.New("still changes")

// change accepts the files if they have changed and are complete.
func (w *Watched[T]) change(now time.Time, settled bool) error {
	states, err := w.states()
	if err != nil {
		return err
	}
	if equalStates(states, w.seen) {
		w.pending = nil
		return nil
	}
	if !equalStates(states, w.pending) {
		w.pending, w.changedAt = states, now
	}
	settled = settled || now.Sub(w.changedAt) >= Settle
	for i, s := range states {
		switch {
		case !s.info.Mode().IsRegular(): // reading may block
			return fmt.Errorf("%s is not a regular file", w.Paths[i])
		case !settled && !s.settled(now):
			return errPending
		}
	}
	return w.take(states)
}

// take reads the files whose states were found before.
func (w *Watched[T]) take(states []state) error {
	var texts [][]byte
	var shapes []Shape
	for i, path := range w.Paths {
		text, err := read(path, w.MaxSize)
		if err == nil && w.shapes != nil {
			err = w.shapes[i].Check(path, text)
		}
		if err != nil {
			return err
		}
		texts, shapes = append(texts, text), append(shapes, ShapeOf(text))
	}
	after, err := w.states()
	if err != nil {
		return err
	}
	if w.seen != nil && !equalStates(states, after) {
		return errPending
	}
	value, err := w.Parse(texts)
	if err != nil {
		return err
	}
	w.seen, w.shapes, w.pending = states, shapes, nil
	w.mu.Lock()
	defer w.mu.Unlock()
	w.value = value
	return nil
}

func (w *Watched[T]) states() (out []state, err error) {
	for _, path := range w.Paths {
		s, err := stateOf(path)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func equalStates(a, b []state) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !a[i].same(b[i]) {
			return false
		}
	}
	return true
}

// report calls Failed once for each reason, and not at each look.
func (w *Watched[T]) report(err error) {
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	w.mu.Lock()
	news := fault != w.fault
	w.fault = fault
	w.mu.Unlock()
	if news && w.Failed != nil {
		w.Failed(err)
	}
}

// LogFailed returns a function for Options.Failed: the function logs that the file of a setting cannot be read again,
// and that the file can be read again.
func LogFailed(log *slog.Logger, setting string) func(error) {
	return func(err error) {
		if err == nil {
			log.Warn("a file can be read again", "setting", setting)
			return
		}
		log.Error("a file could not be read again: what it had before is still valid", "setting", setting, "error", err)
	}
}
