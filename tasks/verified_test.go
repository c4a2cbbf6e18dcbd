package tasks

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// counted counts the bytes that are read from blobs.
type counted struct {
	Blobs
	n atomic.Int64
}

func (c *counted) Open(ctx context.Context, key string) (blob.Reader, error) {
	r, err := c.Blobs.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	return countedReader{r.(blob.Stamped), c}, nil
}

type countedReader struct {
	blob.Stamped
	of *counted
}

func (r countedReader) Read(b []byte) (int, error) {
	n, err := r.Stamped.Read(b)
	r.of.n.Add(int64(n))
	return n, err
}

// TestPartsOfResults: the first reader of a result reads the whole, later readers read the parts that they need. A part
// that the disk has changed is an error for each reader of this part, and afterwards the result is damaged for all. A
// replaced file is read as a whole again.
func TestPartsOfResults(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	want := make([]byte, 3*partSize+100)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	r.submit(Task{Model: "m"}, "x")
	c := claim(t, r.Store)
	w, err := c.Create()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(want); err != nil {
		t.Fatal(err)
	}
	var f File
	if f.Info, err = w.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := c.Finish(f); err != nil {
		t.Fatal(err)
	}
	task, _ := r.Get(c.Task().ID)
	count := &counted{Blobs: r.blobs}
	r.blobs = count
	part := func(from, to int) ([]byte, error) {
		t.Helper()
		in, err := r.Result(t.Context(), task)
		if err != nil {
			return nil, err
		}
		defer in.Close()
		if _, err := in.Seek(int64(from), io.SeekStart); err != nil {
			t.Fatal(err)
		}
		return io.ReadAll(io.LimitReader(in, int64(to-from)))
	}
	for _, p := range [][2]int{{0, 1}, {0, len(want)}, {partSize - 1, partSize + 1}, {len(want) - 1, len(want)},
		{2 * partSize, 3 * partSize}, {5, 2*partSize + 7}} {
		if got, err := part(p[0], p[1]); err != nil || !bytes.Equal(got, want[p[0]:p[1]]) {
			t.Errorf("the bytes %v: %d bytes, %v", p, len(got), err)
		}
	}
	in, err := r.Result(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	at := make([]byte, 9)
	if n, err := in.ReadAt(at, partSize-4); n != len(at) || err != nil || !bytes.Equal(at, want[partSize-4:][:9]) {
		t.Errorf("ReadAt: %d, %v", n, err)
	}
	_ = in.Close()
	// the whole, then a part, the whole, two parts, the last part, a part, three parts, and two of ReadAt
	if got, most := count.n.Load(), int64(2*len(want)+10*partSize); got > most {
		t.Errorf("%d bytes were read, want at most %d", got, most)
	}

	name := filepath.Join(r.dir, "files", resultKey(task.ID, 1))
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	write := func(b []byte, at time.Time) {
		t.Helper()
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	bad := bytes.Clone(want)
	bad[2*partSize+9] ^= 1
	write(bad, info.ModTime()) // as a disk changes a byte
	if got, err := part(0, 10); err != nil || !bytes.Equal(got, want[:10]) {
		t.Errorf("a sound part: %v", err)
	}
	if got, err := part(2*partSize, 2*partSize+4); coded.CodeOf(err) != coded.Internal || len(got) > 0 {
		t.Errorf("a damaged part: %d bytes, %v", len(got), err)
	}
	if _, err := part(0, 10); coded.CodeOf(err) != coded.Internal {
		t.Errorf("a sound part of a result known as damaged: %v", err)
	}
	write(want, info.ModTime())
	if _, err := part(0, 10); err != nil {
		t.Errorf("the result from a backup: %v", err)
	}
	write(bad, info.ModTime().Add(time.Second))
	if _, err := part(0, 10); coded.CodeOf(err) != coded.Internal {
		t.Errorf("a sound part of a replaced result: %v", err)
	}
}

// TestRememberedResults: the checksums of remembered results are bounded, and the results read last stay.
func TestRememberedResults(t *testing.T) {
	var v verified
	add := func(key string, parts int) {
		t.Helper()
		if p, wait := v.get(key, blob.Stamp{}); p != nil || wait != nil {
			t.Fatalf("%s is known", key)
		}
		v.put(key, &partSums{key: key, sums: make([]uint32, parts)})
	}
	add("a", maxParts/2)
	add("b", maxParts/4)
	if p, _ := v.get("a", blob.Stamp{}); p == nil {
		t.Error("a is forgotten")
	}
	add("c", maxParts/2-3*ownParts)
	if v.results["a"] == nil || v.results["b"] != nil || v.results["c"] == nil || v.parts > maxParts {
		t.Errorf("%d results with %d parts are remembered", len(v.results), v.parts)
	}
	add("d", maxParts+1)
	if v.results["d"] != nil || len(v.results) != 2 {
		t.Error("a result above the bound is remembered")
	}
	for i := range 2 * maxParts / ownParts {
		add(strconv.Itoa(i), 1)
	}
	if n := len(v.results); n > maxParts/ownParts || n != v.recent.Len() {
		t.Errorf("%d small results are remembered", n)
	}
}

// TestSumsTwice: checksums of a blob that is written and read count once.
func TestSumsTwice(t *testing.T) {
	var v verified
	v.keep(&partSums{key: "a", sums: make([]uint32, 3)})
	v.reading["a"] = make(chan struct{})
	v.put("a", &partSums{key: "a", sums: make([]uint32, 3)})
	if v.recent.Len() != 1 || v.parts != 3+ownParts {
		t.Errorf("%d checksums of blobs, %d parts", v.recent.Len(), v.parts)
	}
}
