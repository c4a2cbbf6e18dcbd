package stream_test

import (
	"testing"

	"millrace/stream"
)

// lastResult keeps the last ending.
type lastResult struct{ r *stream.Result }

func (k *lastResult) Push(r *stream.Result) { k.r = r }

func (k *lastResult) Done(stream.CloseReason) {}

type watcher struct{}

func (watcher) Unbound() {}

func (watcher) Released() {}

// watching is a queue that watches each ended request.
type watching struct{ queue }

func (*watching) Ended(r *stream.Request) { r.Watch(watcher{}) }

// A request is free for reuse, and then empty, once both the worker and the holder of the result have recycled the
// request, and only if a caller waited for the ending and nobody watches the request.
func TestRecycle(t *testing.T) {
	caller := &stream.Caller{}
	output := stream.Tensor{Name: "y", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{7}}
	worker, holder := (*stream.Request).Recycle, (*stream.Result).Recycle
	for name, c := range map[string]struct {
		by     *stream.Caller
		queue  stream.Queue
		worker func(*stream.Request)
		holder func(*stream.Result)
		free   bool
	}{
		"both":                 {caller, &queue{}, worker, holder, true},
		"the worker alone":     {caller, &queue{}, worker, (*stream.Result).Release, false},
		"the holder alone":     {caller, &queue{}, (*stream.Request).Unbind, holder, false},
		"without a caller":     {nil, &queue{}, worker, holder, false},
		"watched":              {caller, &watching{}, worker, holder, false},
		"watched and detached": {caller, &watching{}, worker, func(r *stream.Result) { r.Detach() }, false},
		"detached":             {caller, &queue{}, worker, func(r *stream.Result) { r.Detach().Release() }, true},
	} {
		for _, first := range []string{"worker", "holder"} {
			k := &lastResult{}
			s := stream.New(&stream.Model{Name: "m", MaxBatch: 1, AcceptsAnyInput: true}, c.queue, k, stream.Options{})
			if err := s.SubmitBy(stream.Frame{Seq: 5}, c.by, stream.Now()); err != nil {
				t.Fatal(err)
			}
			r, _ := s.Take(0, 1, nil, 0)
			r.FinishSingle(output, nil, true)
			steps := []func(){func() { c.worker(r) }, func() { c.holder(k.r) }}
			if first == "holder" {
				steps[0], steps[1] = steps[1], steps[0]
			}
			steps[0]()
			if r.Stream != s || r.Outcome() != stream.Answered || r.Fail(nil) {
				t.Errorf("%s, %s first: the request is free although it is in use", name, first)
			}
			steps[1]()
			if free := r.Stream == nil; free != c.free {
				t.Errorf("%s, %s first: free is %v", name, first, free)
			}
		}
	}
}

// A request that ended while it waited, and so was in no batch, is not reused.
func TestAWaitingRequestIsNotRecycled(t *testing.T) {
	k := &lastResult{}
	s := stream.New(&stream.Model{Name: "m", MaxBatch: 1, AcceptsAnyInput: true}, &queue{}, k, stream.Options{})
	if err := s.SubmitBy(stream.Frame{Seq: 5}, &stream.Caller{}, stream.Now()); err != nil {
		t.Fatal(err)
	}
	s.Close(stream.ByClient)
	k.r.Recycle()
	if k.r.Seq != 5 {
		t.Error("the request was emptied")
	}
}

// A detached result stays as it was when its request serves another frame, and may be released twice.
func TestDetach(t *testing.T) {
	k := &lastResult{}
	s := stream.New(&stream.Model{Name: "m", MaxBatch: 1, AcceptsAnyInput: true}, &queue{}, k, stream.Options{})
	finish := func(seq uint64, data byte) *stream.Result {
		if err := s.SubmitBy(stream.Frame{Seq: seq}, &stream.Caller{}, stream.Now()); err != nil {
			t.Fatal(err)
		}
		r, _ := s.Take(0, 1, nil, 0)
		r.FinishSingle(stream.Tensor{Name: "y", Data: []byte{data}}, nil, true)
		r.Recycle()
		return k.r.Detach()
	}
	first := finish(1, 11)
	second := finish(2, 22)
	if first.Seq != 1 || second.Seq != 2 || first.Outputs[0].Data[0] != 11 || second.Outputs[0].Data[0] != 22 {
		t.Errorf("got %+v and %+v", first, second)
	}
	first.Release()
	first.Release()
	if second.Outputs == nil {
		t.Error("the release of one result has released another result")
	}
}
