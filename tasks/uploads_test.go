package tasks

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// TestUploadFullDisk: the error of a part that the disk has not taken says that the disk is full.
func TestUploadFullDisk(t *testing.T) {
	d, err := OpenData(t.Context(), t.TempDir(), true, Options{UploadExpiry: 100 * 365 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	u, _, err := d.CreateUpload(t.Context(), NewUpload{Upload: Upload{Task: Task{Model: "m"}, Length: 4}})
	if err != nil {
		t.Fatal(err)
	}
	// The modification time of the device, which can be old, is the time of the newest byte: hence the long expiry.
	part := d.uploads.part(u.Task.ID)
	if err := errors.Join(os.Remove(part), os.Symlink("/dev/full", part)); err != nil {
		t.Fatal(err)
	}
	_, _, err = d.AppendUpload(t.Context(), u.Task.ID, UploadPart{Data: func(w io.Writer) error {
		_, err := io.WriteString(w, "data")
		return err
	}})
	if !errors.Is(err, blob.ErrFull) || coded.CodeOf(err) != coded.Overloaded {
		t.Errorf("a part on a full disk: %v", err)
	}
}
