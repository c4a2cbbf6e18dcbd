package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

const largeMemory = 64 // MB

// largeInput is the size of the input in the rows about a task with a large file.
var largeInput = 2 << 30

// copier is a model that takes files, and returns a copy of the input.
type copier struct{ workers.Base }

func init() {
	workers.Register(workers.Kind{Name: "copier", New: func() workers.Worker { return copier{} }})
}

// Init implements workers.Worker.
func (copier) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{Platform: "copier", Files: true}, nil
}

// Run implements workers.Worker.
func (copier) Run(context.Context, *batching.Batch) error { return errors.ErrUnsupported }

// RunFile implements workers.FileWorker.
func (copier) RunFile(_ context.Context, f *stream.FileRun) error {
	w, err := f.Create("copy.zip", "application/zip")
	if err == nil {
		// in pieces as models of the kind container
		_, err = io.CopyBuffer(struct{ io.Writer }{w}, io.NewSectionReader(f.Input, 0, f.Size), make([]byte, 64<<10))
	}
	return err
}

// largeTask compares a task with a large input and a result of the same size with two copies of the file, each synced;
// and measures the memory that the server needs more than before. Both sides remove their files after the measurement:
// files that are overwritten keep their memory, and new memory of a virtual machine costs ten times as much.
func largeTask(b *bench) (err error) {
	dir, err := os.MkdirTemp(b.dir, "large")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := startServer(fmt.Sprintf("data: %s\ntasks: {max_input: 4GB}\nmodels: [{name: copy, source: copier}]\n",
		filepath.Join(dir, "data")))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	input := filepath.Join(dir, "input.zip")
	if err := writeLarge(input); err != nil {
		return err
	}
	idle, err := s.usage()
	if err != nil {
		return err
	}
	most := idle.pss
	c := newTaskClient(s.addr)
	bare := func(time.Duration) (float64, error) {
		in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
		began := time.Now()
		err := copySynced(in, input)
		if err == nil {
			err = copySynced(out, in)
		}
		rate := float64(largeInput) / 1e6 / time.Since(began).Seconds()
		return rate, errors.Join(err, os.Remove(in), os.Remove(out))
	}
	ours := func(time.Duration) (float64, error) {
		began := time.Now()
		stop, sampled := make(chan struct{}), make(chan struct{})
		go func() { // ends with stop
			defer close(sampled)
			for {
				if use, err := s.usage(); err == nil {
					most = max(most, use.pss)
				}
				select {
				case <-stop:
					return
				case <-time.After(250 * time.Millisecond):
				}
			}
		}()
		id, err := c.runLarge(input)
		rate := float64(largeInput) / 1e6 / time.Since(began).Seconds()
		close(stop)
		<-sampled
		if err == nil {
			err = c.do("DELETE", "/"+id, "", nil)
		}
		return rate, err
	}
	rounds := b.rounds
	b.rounds = max(rounds/3, 1)
	row, err := b.pair("2 GB in, 2 GB out through a task, against two copies with fsync", "MB/s", bare, ours)
	b.rounds = rounds
	if err != nil {
		return err
	}
	b.add(row.atLeast(0.7))
	b.add(limited(Row{Name: "memory more than before, while a task takes and returns 2 GB", Unit: "MB",
		Millrace: (most - idle.pss) / 1e6}, largeMemory))
	return nil
}

// writeLarge writes a file with bytes that do not repeat.
func writeLarge(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	block, v := make([]byte, 1<<20), uint64(1)
	for n := 0; n < largeInput && err == nil; n += len(block) {
		for i := range block {
			v = v*6364136223846793005 + 1442695040888963407
			block[i] = byte(v >> 56)
		}
		_, err = f.Write(block)
	}
	return errors.Join(err, f.Sync(), f.Close())
}

func copySynced(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(struct{ io.Writer }{out}, struct{ io.Reader }{in}) // as cp without reflinks
	return errors.Join(err, out.Sync(), out.Close())
}

// runLarge submits a file, waits, and fetches the result.
func (c *taskClient) runLarge(input string) (id string, err error) {
	f, err := os.Open(input)
	if err != nil {
		return "", err
	}
	defer f.Close()
	req, err := http.NewRequest("POST", c.base+"?model=copy", f)
	if err != nil {
		return "", err
	}
	req.ContentLength = int64(largeInput)
	req.Header.Set("Content-Type", "application/zip")
	var t taskState
	if err := c.stream(req, func(r io.Reader) error { return json.NewDecoder(r).Decode(&t) }); err != nil {
		return "", err
	}
	if _, err := c.wait(t.ID); err != nil {
		return "", err
	}
	if req, err = http.NewRequest("GET", c.base+"/"+t.ID+"/result", nil); err != nil {
		return "", err
	}
	return t.ID, c.stream(req, func(r io.Reader) error {
		// the pieces of io.Discard, of 8 KiB, take as much processor time as the server
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, make([]byte, 128<<10))
		if err == nil && n != int64(largeInput) {
			err = fmt.Errorf("the result has %d bytes", n)
		}
		return err
	})
}

// stream sends a request whose body or answer is not in memory as a whole.
func (c *taskClient) stream(req *http.Request, read func(io.Reader) error) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return fmt.Errorf("%s %s: %s: %s", req.Method, req.URL, resp.Status, text)
	}
	return read(resp.Body)
}
