package stream_test

import (
	"testing"

	"millrace/stream"
)

// Only a model with routes takes frames with a Call, and such frames have a class of their own.
func TestCallsAreForModelsWithRoutes(t *testing.T) {
	dense := func(change func(*stream.Model)) *stream.Model {
		m := &stream.Model{Name: "m", MaxBatch: 4,
			Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{2}}}}
		change(m)
		return m
	}
	call := stream.Frame{Call: &stream.Call{}}
	tensors := stream.Frame{Codec: stream.Tensors, Call: &stream.Call{},
		Inputs: []stream.Tensor{{Name: "x", Datatype: stream.Uint8, Shape: []int{2}, Data: []byte("ab")}}}
	for name, c := range map[string]struct {
		m    *stream.Model
		f    stream.Frame
		code stream.Code
	}{
		"a model with routes":       {dense(func(m *stream.Model) { m.App = &stream.App{} }), call, ""},
		"a model of others' routes": {dense(func(m *stream.Model) { m.Calls = true }), call, ""},
		"a model of pictures with routes": {dense(func(m *stream.Model) {
			m.Calls, m.Image = true, &stream.ImageSpec{}
		}), call, ""},
		"anything, with routes": {dense(func(m *stream.Model) { m.Calls, m.AcceptsAnyInput = true, true }), call,
			""},
		"a model without routes": {dense(func(*stream.Model) {}), call, stream.Unsupported},
		"anything, without routes": {dense(func(m *stream.Model) { m.AcceptsAnyInput = true }), call,
			stream.Unsupported},
		"a call of tensors": {dense(func(m *stream.Model) {
			m.Calls = true
		}), tensors, stream.InvalidArgument},
		"no call": {dense(func(m *stream.Model) {
			m.Calls = true
		}), stream.Frame{}, stream.Unsupported},
	} {
		rows, class, err := c.m.Check(&c.f)
		if stream.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (rows != 1 || class == 0) {
			t.Errorf("%s: %d rows of class %d", name, rows, class)
		}
	}
	m := dense(func(m *stream.Model) { m.Calls = true })
	tensors.Call = nil
	if _, class, err := m.Check(&tensors); err != nil || class != 0 {
		t.Errorf("a frame of a model with routes: class %d, %v", class, err)
	}
}

// Equal calls are both run, and the sink gets their replies, also with the parts before the result.
func TestCallsAreNotCached(t *testing.T) {
	m := &stream.Model{Name: "m", MaxBatch: 1, AcceptsAnyInput: true, Calls: true, Cache: stream.NewCache(1 << 20),
		Decoupled: true}
	q := &queue{}
	k := &keptReplies{}
	s := stream.New(m, q, k, stream.Options{OneShot: true, Policy: stream.Policy{Mode: stream.Every, Window: 4}})
	for i := range 2 {
		if err := s.Submit(stream.Frame{Payload: []byte("same"), Call: &stream.Call{}}); err != nil {
			t.Fatal(err)
		}
		r, _ := s.Take(stream.Now(), 1, nil, 0)
		if r == nil {
			t.Fatalf("call %d was not run", i)
		}
		r.SetReply(&stream.Reply{Status: 200 + i})
		r.Emit(nil, nil)
		r.Finish(nil, nil, false)
		r.Unbind()
	}
	if n, _ := m.Cache.Size(); n != 0 {
		t.Errorf("%d results of calls are kept", n)
	}
	for i, reply := range k.all {
		if reply == nil || reply.Status != 200+i/2 {
			t.Errorf("result %d has the reply %+v", i, reply)
		}
	}
	if len(k.all) != 4 {
		t.Errorf("%d results and parts", len(k.all))
	}
	s.Close(stream.ByClient)
}

type keptReplies struct{ all []*stream.Reply }

func (k *keptReplies) Push(r *stream.Result) {
	k.all = append(k.all, r.Reply)
	if !r.Partial {
		r.Remember()
	}
	r.Release()
}

func (*keptReplies) Done(stream.CloseReason) {}

// A call to a model with windows is a request, and stays a request when the model is replaced.
func TestCallsAreNotAssembled(t *testing.T) {
	m := &stream.Model{Name: "m", MaxBatch: 1, AcceptsAnyInput: true, Calls: true, Assembly: refusing{}}
	q := &queue{}
	k := &keptReplies{}
	s := stream.New(m, q, k, stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: 4}})
	if err := s.Submit(stream.Frame{Call: &stream.Call{}}); err != nil {
		t.Fatal(err)
	}
	s.Move(q, &stream.Model{Name: "m", MaxBatch: 1, AcceptsAnyInput: true, Calls: true, Assembly: refusing{}})
	if len(k.all) > 0 {
		t.Fatal("the call has ended")
	}
	if r, _ := s.Take(stream.Now(), 1, nil, 0); r == nil || r.Assembled != nil {
		t.Fatal("the call does not wait")
	} else {
		r.Finish(nil, nil, false)
		r.Unbind()
	}
	s.Close(stream.ByClient)
}

// refusing is an assembler that refuses every frame.
type refusing struct{}

func (refusing) NewAssembler(*stream.Model, bool) stream.Assembler { return refusing{} }
func (refusing) IsRequest(*stream.Frame) bool                      { return false }
func (refusing) Assemble(*stream.Frame) (int, *stream.Assembled, stream.Params, error) {
	return 0, nil, nil, stream.Errorf(stream.Internal, "", "a call came to the assembler")
}
func (refusing) Reset()                   {}
func (refusing) Adopt(*stream.Model) bool { return false }
