package tasks

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"millrace/tasks/blob"
)

// inMemory is a blob.Reader of bytes.
func inMemory(b []byte) blob.Reader { return memory{bytes.NewReader(b)} }

// TestWrittenSums: the checksums of an input that is being written are the checksums of the stored file, whatever the
// pieces are.
func TestWrittenSums(t *testing.T) {
	d := openData(t, t.TempDir())
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{partSize + 1, 2 * partSize, 3*partSize - 1, 3*partSize + 70_000} {
		input := make([]byte, size)
		for i := range input {
			input[i] = byte(rnd.Uint32())
		}
		task, _, err := d.Submit(t.Context(), Submission{Task: Task{Model: "m"}, Data: func(w blob.Writer) error {
			for rest := input; len(rest) > 0; {
				n := min(len(rest), 1+rnd.IntN(400_000))
				if _, err := w.Write(rest[:n]); err != nil {
					return err
				}
				rest = rest[n:]
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		e := d.verified.results[inputKey(task.ID)]
		if e == nil {
			t.Errorf("%d bytes: no checksums", size)
			continue
		}
		want, err := sumParts(t.Context(), inMemory(input), task.Input.Info)
		if err != nil || !slices.Equal(want.sums, e.Value.(*partSums).sums) {
			t.Errorf("%d bytes: %v, other checksums", size, err)
		}
	}
}

// TestDamagedPartOfInput: a part of an input that the disk has changed since the submission fails the reading of that
// part, and the task at the next attempt.
func TestDamagedPartOfInput(t *testing.T) {
	dir := t.TempDir()
	d := openData(t, dir)
	r := &rig{Store: d.Store, t: t}
	task := r.submit(Task{Model: "m"}, string(make([]byte, 3*partSize)))
	name := filepath.Join(dir, "files", filepath.FromSlash(inputKey(task.ID)))
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	flip(t, dir, inputKey(task.ID))
	if err := os.Chtimes(name, time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
	c := claim(t, d.Store)
	in, err := c.Input()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, partSize)
	if n, err := in.ReadAt(b, 100); n != partSize-100 || !errors.Is(err, blob.ErrDamaged) {
		t.Errorf("a sound part and a damaged one: %d bytes, %v", n, err)
	}
	if _, err := io.ReadFull(in, b); err != nil {
		t.Errorf("a sound part: %v", err)
	}
	if _, err := in.(*partReader).Path(t.Context(), task.Input.Info); !errors.Is(err, blob.ErrDamaged) {
		t.Errorf("for a program: %v", err)
	}
	_ = in.Close()
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := claim(t, d.Store).Input(); !errors.Is(err, ErrDamaged) {
		t.Errorf("the next attempt: %v", err)
	}
}
