package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"millrace/internal/onnxfile"
	"millrace/stream"
	"millrace/workers"
)

const (
	onnxBatch     = 8
	onnxInstances = 2
	onnxThreads   = 1
	// With so many callers full batches wait while all instances run.
	onnxCallers = 4 * onnxInstances * onnxBatch

	cnnSide   = 128
	cnnScores = 10
)

// mlpHidden makes the weights of the MLP, 1.5 times its square as FP32, larger than the caches, so that memory
// bandwidth limits a batch.
var mlpHidden = 4096

// onnxModels are the models of the rows about ONNX, as files.
type onnxModels struct {
	dir      string
	mlp, cnn string // paths
}

func writeModels() (*onnxModels, error) {
	dir, err := os.MkdirTemp("", "millrace-bench")
	if err != nil {
		return nil, err
	}
	m := &onnxModels{dir: dir, mlp: filepath.Join(dir, "mlp.onnx"), cnn: filepath.Join(dir, "cnn.onnx")}
	err = errors.Join(
		os.WriteFile(m.mlp, onnxfile.MLP(mlpHidden/4, mlpHidden, mlpHidden/4, 3), 0o600),
		os.WriteFile(m.cnn, onnxfile.CNN(cnnSide, cnnSide), 0o600),
	)
	if err != nil {
		m.remove()
		return nil, err
	}
	return m, nil
}

func (m *onnxModels) remove() { os.RemoveAll(m.dir) }

// onnxModel configures a file as run by the bare loops.
func onnxModel(name, path string, maxSize int) workers.Config {
	return workers.Config{Name: name, Source: path, Instances: onnxInstances,
		Batching: workers.Batching{MaxSize: maxSize},
		Params:   stream.Params{"threads": int64(onnxThreads)}}
}

// withONNX starts a server of models of m, and ends the server after do. The server also starts the library for the
// bare loops.
func withONNX(do func(m *onnxModels, t *target) error, models func(m *onnxModels) []workers.Config) error {
	m, err := writeModels()
	if err != nil {
		return err
	}
	defer m.remove()
	t, err := serve(nil, models(m)...)
	if err != nil {
		return err
	}
	return errors.Join(do(m, t), t.end())
}

// onnxCalls compares calls with a loop that runs the same batches over bound tensors, and copies each row in, as any
// server must; and once, an unequal comparison, with a loop that copies nothing. The two instances of the MLP read
// the same weights, too large for the caches: the bare loops of the MLP are also run in step and staggered.
func onnxCalls(b *bench) error {
	mlp, cnn := tensor("x", mlpHidden/4), tensor("image", 3, cnnSide, cnnSide)
	return withONNX(func(m *onnxModels, t *target) error {
		for _, c := range []struct {
			name, path, model string
			in, out           stream.Tensor
			fill              bool
			phase             phase
			limit             float64
		}{
			{"MLP", m.mlp, "mlp", mlp, tensor("y", mlpHidden/4), true, free, 0.95},
			{"MLP, bare in step", m.mlp, "mlp", mlp, tensor("y", mlpHidden/4), true, inStep, 0},
			{"MLP, bare staggered", m.mlp, "mlp", mlp, tensor("y", mlpHidden/4), true, staggered, 0},
			{"small CNN", m.cnn, "cnn", cnn, tensor("scores", cnnScores), true, free, 0.95},
			{"small CNN, bare copies nothing", m.cnn, "cnn", cnn, tensor("scores", cnnScores), false, free, 0},
		} {
			l, err := openLoop(c.path, c.in, c.out)
			if err != nil {
				return err
			}
			row, err := b.throughput("ONNX "+c.name, t, c.model, l, c.fill, c.phase)
			l.close()
			if err != nil {
				return err
			}
			b.add(row.atLeast(c.limit))
		}
		one := func(d time.Duration) (float64, error) { return t.callers("mlp1", mlp, d, new(meter)) }
		eight := func(d time.Duration) (float64, error) { return t.callers("mlp", mlp, d, new(meter)) }
		row, err := b.pair(fmt.Sprintf("ONNX MLP, max_size %d against 1", onnxBatch), "rows/s", one, eight)
		if err != nil {
			return err
		}
		b.add(row)
		return nil
	}, func(m *onnxModels) []workers.Config {
		return []workers.Config{onnxModel("mlp", m.mlp, onnxBatch), onnxModel("mlp1", m.mlp, 1),
			onnxModel("cnn", m.cnn, onnxBatch)}
	})
}

// throughput compares callers that keep a model busy with the bare loop, at the model's mean batch size.
func (b *bench) throughput(name string, t *target, model string, l *loop, fill bool, p phase) (Row, error) {
	var sizes meter
	if _, err := t.callers(model, l.in, b.round, &sizes); err != nil {
		return Row{}, fmt.Errorf("%s: %w", name, err)
	}
	size := func() int { return int(math.Round(sizes.mean())) }
	row, err := b.pair(name, "rows/s",
		func(d time.Duration) (float64, error) { return l.rate(size(), fill, p, d) },
		func(d time.Duration) (float64, error) { return t.callers(model, l.in, d, &sizes) })
	row.Name = fmt.Sprintf("%s, batch %d (mean %.1f)", name, size(), sizes.mean())
	return row, err
}

// tensor returns an FP32 tensor of one row.
func tensor(name string, shape ...int) stream.Tensor {
	size := 4
	for _, d := range shape {
		size *= d
	}
	return stream.Tensor{Name: name, Datatype: stream.Float32, Shape: append([]int{1}, shape...),
		Data: make([]byte, size)}
}

// meter computes the mean size of batches.
type meter struct{ rows, batches float64 }

func (m *meter) mean() float64 { return m.rows / m.batches }

// callers keeps onnxCallers calls of one row in flight, adds the sizes of the calls' batches to sizes, and returns
// rows per second.
func (t *target) callers(model string, in stream.Tensor, d time.Duration, sizes *meter) (float64, error) {
	var mu sync.Mutex
	client, ctx := t.Native(), context.Background()
	return throughputOf(onnxCallers, d, func(more func() bool, done func(int)) error {
		var own meter
		for more() {
			r, err := client.Infer(ctx, model, []stream.Tensor{in})
			if err != nil {
				return err
			}
			own.rows++
			own.batches += 1 / float64(r.BatchSize)
			r.Release()
			done(1)
		}
		mu.Lock()
		defer mu.Unlock()
		sizes.rows, sizes.batches = sizes.rows+own.rows, sizes.batches+own.batches
		return nil
	})
}
