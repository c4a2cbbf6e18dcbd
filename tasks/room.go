package tasks

import (
	"fmt"

	"millrace/tasks/blob"
)

// Bytes of the disk that inputs and results leave free. Records go on while the disk has no room for files: tasks end,
// and clients delete tasks.
const (
	inputReserve  = 32 << 20
	resultReserve = inputReserve / 2
)

// roomStep is the number of written bytes after which reserving looks at the disk again.
const roomStep = 1 << 20

func checkRoom(blobs Blobs, keep int64) error {
	if free := blobs.Free(); free < keep {
		return blobs.Full(fmt.Errorf("%d MiB are free, and records of tasks need %d MiB", free>>20, keep>>20))
	}
	return nil
}

// reserving is a blob that is written while the disk has more room than kept for records.
type reserving struct {
	blob.Writer
	blobs Blobs
	keep  int64
	since int64 // bytes written since the last look at the disk
}

// Write implements io.Writer.
func (w *reserving) Write(b []byte) (int, error) {
	if w.since += int64(len(b)); w.since >= roomStep {
		w.since = 0
		if err := checkRoom(w.blobs, w.keep+int64(len(b))); err != nil {
			return 0, err
		}
	}
	return w.Writer.Write(b)
}

// Fill implements blob.Writer.
func (w *reserving) Fill(fill func(path string, room func() error) error) error {
	return w.Writer.Fill(func(path string, _ func() error) error {
		return fill(path, func() error { return checkRoom(w.blobs, w.keep) })
	})
}
