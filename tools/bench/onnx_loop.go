package main

import (
	"errors"
	"time"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"millrace/stream"
)

// loop runs a model by ONNX Runtime alone.
type loop struct {
	session *ort.DynamicAdvancedSession
	in, out stream.Tensor // of one row
}

// openLoop needs the library to have been started, by a server.
func openLoop(path string, in, out stream.Tensor) (*loop, error) {
	o, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	defer o.Destroy()
	err = errors.Join(o.SetIntraOpNumThreads(onnxThreads), o.SetInterOpNumThreads(1),
		o.AddSessionConfigEntry("session.intra_op.allow_spinning", "0"))
	if err != nil {
		return nil, err
	}
	s, err := ort.NewDynamicAdvancedSession(path, []string{in.Name}, []string{out.Name}, o)
	return &loop{session: s, in: in, out: out}, err
}

func (l *loop) close() { l.session.Destroy() }

// bound has the session and tensors of one goroutine.
type bound struct {
	loop    *loop
	binding *ort.IoBinding
	x, y    *ort.Tensor[float32]
}

func (l *loop) bind(batch int) (*bound, error) {
	b := &bound{loop: l}
	var errs [3]error
	b.binding, errs[0] = l.session.CreateIoBinding()
	b.x, errs[1] = ort.NewEmptyTensor[float32](batched(l.in, batch))
	b.y, errs[2] = ort.NewEmptyTensor[float32](batched(l.out, batch))
	err := errors.Join(errs[:]...)
	if err == nil {
		err = errors.Join(b.binding.BindInput(l.in.Name, b.x), b.binding.BindOutput(l.out.Name, b.y))
	}
	return b, err
}

func batched(t stream.Tensor, batch int) ort.Shape {
	s := ort.NewShape(int64(batch))
	for _, d := range t.Shape[1:] {
		s = append(s, int64(d))
	}
	return s
}

// input is the memory of the batch.
func (b *bound) input() []byte {
	x := b.x.GetData()
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

func (b *bound) run() error { return b.loop.session.RunWithBinding(b.binding) }

func (b *bound) close() {
	b.binding.Destroy()
	b.x.Destroy()
	b.y.Destroy()
}

// rate returns rows per second of one goroutine for each instance, whose runs begin according to p. With fill, each
// row is copied in.
func (l *loop) rate(batch int, fill bool, p phase, d time.Duration) (float64, error) {
	s := newStarts(p, onnxInstances)
	return throughputOf(onnxInstances, d, func(more func() bool, done func(int)) error {
		defer s.leave()
		b, err := l.bind(batch)
		if err != nil {
			return err
		}
		defer b.close()
		input := b.input()
		var took time.Duration
		for more() {
			for at := 0; fill && at < len(input); at += len(l.in.Data) {
				copy(input[at:], l.in.Data)
			}
			s.wait(b, took)
			began := time.Now()
			if err := b.run(); err != nil {
				return err
			}
			took = time.Since(began)
			done(batch)
		}
		return nil
	})
}
