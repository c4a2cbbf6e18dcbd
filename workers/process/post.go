package process

import (
	"cmp"
	"errors"
	"os"
	"time"
)

// post sends a message without a reply. A partly read message ends the child, which could not understand later
// messages.
func (w *Worker) post(text []byte, fd int) {
	w.proc.writing.Lock()
	defer w.proc.writing.Unlock()
	_ = w.postLocked(text, fd, w.patience())
}

// tryPost is post for a short message, without waiting for another message or for room, and reports whether the
// message was sent.
func (w *Worker) tryPost(text []byte) bool {
	if !w.proc.writing.TryLock() {
		return false
	}
	defer w.proc.writing.Unlock()
	return w.postLocked(text, -1, 0)
}

func (w *Worker) postLocked(text []byte, fd int, limit time.Duration) bool {
	err := w.proc.sendLocked(text, nil, fd, limit)
	if errors.Is(err, errHalf) || limit > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		w.proc.giveUp("timeout", w.tooLong("did not read a message", cmp.Or(limit, writeLimit)))
	}
	return err == nil
}

// patience is the time limit for the child to read a message: the limit of the batch that may run before.
func (w *Worker) patience() time.Duration {
	if w.env.Limit > 0 {
		return w.env.Limit
	}
	return writeLimit
}
