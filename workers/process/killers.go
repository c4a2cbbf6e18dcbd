package process

import (
	"encoding/binary"
	"hash/maphash"
	"maps"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/stream"
	"millrace/workers"
)

// maxKillers bounds the remembered inputs of a model.
const maxKillers = 1024

// crashHistory is the shared knowledge of a model's instances: the model's description, and requests that have ended a
// program, or may have.
type crashHistory struct {
	refuse time.Duration // time for refusing input that ended the program
	seed   maphash.Seed  // random, so that no client can make input with another input's digest

	known atomic.Int32 // len(killers)
	open  atomic.Int32 // len(requests)

	mu       sync.Mutex
	killers  map[uint64]stream.Instant // time of ending the program, by digest
	requests map[*stream.Request]trial // requests to run again
	first    *description              // of the model, by the first instance
}

// trial is why a request is run again.
type trial struct {
	alone   bool // was in a fatal batch of several requests
	retried bool // the batch passed the limit, and the model is idempotent
}

// crashHistoryOf returns the crash history of the model's group.
func crashHistoryOf(env *workers.Env, refuse time.Duration) *crashHistory {
	if env.Shared == nil {
		return newCrashHistory(refuse)
	}
	return env.Shared(func() any { return newCrashHistory(refuse) }).(*crashHistory)
}

func newCrashHistory(refuse time.Duration) *crashHistory {
	return &crashHistory{refuse: refuse, seed: maphash.MakeSeed(), killers: map[uint64]stream.Instant{},
		requests: map[*stream.Request]trial{}}
}

// describes returns an error if a program describes another model than the first program did, because clients,
// batches and memory depend on the first description.
func (t *crashHistory) describes(d description) error {
	d.Options, d.Stages, d.Graphs = nil, nil, nil
	if d.App != nil {
		app := *d.App
		app.OpenAPI = nil
		d.App = &app
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first == nil {
		t.first = &d
	}
	if !reflect.DeepEqual(*t.first, d) {
		return stream.Errorf(stream.Conflict, "",
			"the program describes another model than when it was loaded: load it again")
	}
	return nil
}

// remember records that r, alone in a batch, ended the program.
func (t *crashHistory) remember(r *stream.Request, now stream.Instant) {
	if t.refuse <= 0 {
		return
	}
	d := t.digest(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(now)
	if _, ok := t.killers[d]; !ok && len(t.killers) >= maxKillers {
		oldest := d
		for other, at := range t.killers {
			if oldest == d || at < t.killers[oldest] {
				oldest = other
			}
		}
		delete(t.killers, oldest)
	}
	t.killers[d] = now
	t.known.Store(int32(len(t.killers)))
}

// forget removes the expired inputs.
func (t *crashHistory) forget(now stream.Instant) {
	maps.DeleteFunc(t.killers, func(_ uint64, at stream.Instant) bool { return now.Sub(at) >= t.refuse })
	t.known.Store(int32(len(t.killers)))
}

// refused returns an error for input that recently ended the program.
func (t *crashHistory) refused(r *stream.Request, now stream.Instant) error {
	if t.known.Load() == 0 {
		return nil
	}
	d := t.digest(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(now)
	at, ok := t.killers[d]
	if !ok {
		return nil
	}
	return stream.Errorf(stream.InvalidArgument, "refuse", "an equal request ended the model's program %v ago, and "+
		"such input is refused for %v: send other input, or set refuse to 0s", now.Sub(at).Round(time.Millisecond),
		t.refuse)
}

// noteRetry records why r is run again.
func (t *crashHistory) noteRetry(r *stream.Request, change func(*trial)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.requests[r]
	change(&x)
	t.requests[r] = x
	t.open.Store(int32(len(t.requests)))
}

// trialOf returns why r is run again.
func (t *crashHistory) trialOf(r *stream.Request) trial {
	if t.open.Load() == 0 {
		return trial{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requests[r]
}

// settle forgets ended requests.
func (t *crashHistory) settle(of []*stream.Request) {
	if t.open.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range of {
		if r.Outcome() != stream.Pending {
			delete(t.requests, r)
		}
	}
	t.open.Store(int32(len(t.requests)))
}

// digest returns a hash of all parts of r that can influence a program's answer.
func (t *crashHistory) digest(r *stream.Request) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	number := func(n int) {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		_, _ = h.Write(b[:]) // never fails
	}
	text := func(s string) {
		number(len(s))
		_, _ = h.WriteString(s)
	}
	frame := func(f *stream.Frame) {
		number(int(f.Codec))
		number(f.Width)
		number(f.Height)
		number(len(f.Payload))
		_, _ = h.Write(f.Payload)
		number(len(f.Inputs))
		for i := range f.Inputs {
			in := &f.Inputs[i]
			text(in.Name)
			text(string(in.Datatype))
			number(len(in.Shape))
			for _, n := range in.Shape {
				number(n)
			}
			number(len(in.Data))
			_, _ = h.Write(in.Data)
		}
	}
	frame(&r.Frame)
	if r.Assembled != nil {
		for i := range r.Assembled.Frames {
			frame(&r.Assembled.Frames[i])
		}
	}
	for _, n := range [...]float64{float64(r.Region.X), float64(r.Region.Y), float64(r.Region.Width),
		float64(r.Region.Height)} {
		number(int(math.Float64bits(n)))
	}
	for _, key := range slices.Sorted(maps.Keys(r.Params)) {
		text(key)
		switch v := r.Params[key].(type) {
		case string:
			number(1)
			text(v)
		case int64:
			number(2)
			number(int(v))
		case float64:
			number(3)
			number(int(math.Float64bits(v)))
		case bool:
			number(4)
			if v {
				number(1)
			}
		}
	}
	if c := r.Call; c != nil { // headers differ from request to request
		for _, s := range [...]string{c.Endpoint, c.Method, c.Path, c.Query, c.ContentType} {
			text(s)
		}
	}
	return h.Sum64()
}
