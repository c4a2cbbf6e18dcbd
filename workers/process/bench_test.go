package process

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

const benchRow = 4 * 76800

// BenchmarkBare measures a batch of four frames of 300 KB, written to shared memory, copied by the test child, and
// read: the work of a program with direct use of shared memory.
func BenchmarkBare(b *testing.B) {
	path, err := filepath.Abs("testdata/child.py")
	if err != nil {
		b.Fatal(err)
	}
	set := setting.Filled(&settings{Command: path, Common: Settings{Env: []string{"MODE=wide"}}})
	w := NewWorker(commandOf)
	env := &workers.Env{Name: "m", Settings: set, Log: slog.New(slog.DiscardHandler), Memory: buf.NewPool(0),
		Limit: time.Minute}
	if _, err := w.Init(b.Context(), env); err != nil {
		b.Fatal(err)
	}
	defer w.Destroy()
	if err := w.Allocate(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer w.Deallocate()
	if err := w.Acquire(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer w.Release()
	s := <-w.slots
	defer func() { w.slots <- s }()
	if err := w.replace(&s.in, 4*benchRow, false); err != nil {
		b.Fatal(err)
	}
	if err := w.replace(&s.out, 4*benchRow, true); err != nil {
		b.Fatal(err)
	}
	in, out := make([]byte, 4*benchRow), make([]byte, 4*benchRow)
	var requests []map[string]int
	for range 4 {
		requests = append(requests, map[string]int{"rows": 1})
	}
	b.SetBytes(4 * benchRow)
	for b.Loop() {
		s.id++
		copy(s.in.bytes, in)
		text, _ := json.Marshal(map[string]any{"type": "batch", "id": s.id, "requests": requests,
			"results": map[string]int{"segment": s.out.id, "offset": 0, "size": s.out.size()},
			"inputs": []any{map[string]any{"name": "x", "datatype": "FP32", "shape": []int{4, 76800},
				"segment": s.in.id, "offset": 0, "size": 4 * benchRow}}})
		w.proc.mu.Lock()
		w.proc.queue = append(w.proc.queue, s)
		w.proc.mu.Unlock()
		if err := w.proc.send(text, nil, -1, time.Minute); err != nil {
			b.Fatal(err)
		}
		w.proc.giveBack(<-s.answers)
		copy(out, s.out.bytes)
	}
}

// BenchmarkGroup is the same through streams, batches and the worker.
func BenchmarkGroup(b *testing.B) {
	for _, shared := range []bool{true, false} {
		b.Run(map[bool]string{true: "shared memory", false: "pipe"}[shared], func(b *testing.B) {
			benchGroup(b, shared)
		})
	}
}

func benchGroup(b *testing.B, shared bool) {
	path, err := filepath.Abs("testdata/child.py")
	if err != nil {
		b.Fatal(err)
	}
	m := workers.NewManager(workers.ManagerOptions{Memory: buf.NewPool(0),
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	defer func() { _ = m.Close(context.Background()) }()
	_, err = m.LoadConfig(b.Context(), workers.Config{Name: "m", Source: path, Kind: "process",
		Batching: workers.Batching{MaxSize: 4}, Params: stream.Params{"env": `["MODE=wide"]`,
			"shared_memory": shared}}, true)
	if err != nil {
		b.Fatal(err)
	}
	g, err := m.Group("m", "")
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, benchRow)
	var all sync.WaitGroup
	turns := make(chan struct{}, 8)
	const streams = 8
	for range streams {
		s := sink{make(chan *stream.Result, 16), make(chan stream.CloseReason, 1)}
		st, err := g.Open(stream.Options{Policy: stream.Policy{Mode: stream.Every}}, s)
		if err != nil {
			b.Fatal(err)
		}
		all.Go(func() {
			for range turns {
				if err := st.Submit(stream.Frame{Codec: stream.Tensors,
					Inputs: []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{1, 76800},
						Data: data}}}); err != nil {
					panic(err)
				}
				r := <-s.results
				if r.Outcome != stream.Answered {
					panic(fmt.Sprint(r.Err))
				}
				r.Release()
			}
			st.Close(stream.ByClient)
			<-s.done
		})
	}
	b.SetBytes(4 * benchRow)
	b.ReportAllocs()
	for b.Loop() {
		for range 4 {
			turns <- struct{}{}
		}
	}
	close(turns)
	all.Wait()
}
