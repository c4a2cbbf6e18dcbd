package window_test

import (
	"flag"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"millrace/stream"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Rare orders of steps need more than the usual hundred attempts.
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue && !testing.Short() {
		_ = f.Value.Set("2000")
	}
	goleak.VerifyTestMain(m)
}

// queue is a queue of tokens for one goroutine.
type queue struct {
	tokens []*stream.Stream
	ended  int
	faults []string
}

func (e *queue) Enqueue(s *stream.Stream, _ any) {
	if slices.Contains(e.tokens, s) {
		e.faults = append(e.faults, "two tokens of one stream are queued")
	}
	e.tokens = append(e.tokens, s)
}

func (e *queue) Admit(bool) error { return nil }

func (e *queue) AddWaiting(int) {}

func (e *queue) Ended(*stream.Request) { e.ended++ }

func (e *queue) Detach(*stream.Stream) {}

// pop takes the oldest token out, as a worker does.
func (e *queue) pop() *stream.Stream {
	if len(e.tokens) == 0 {
		return nil
	}
	s := e.tokens[0]
	e.tokens = e.tokens[1:]
	return s
}

func tensor(name string, d stream.Datatype, shape ...int) stream.Tensor {
	return stream.Tensor{Name: name, Datatype: d, Shape: shape, Data: make([]byte, stream.Elements(shape)*d.Size())}
}
