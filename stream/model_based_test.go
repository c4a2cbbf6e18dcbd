package stream_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/stream"
)

// reference computes the expected behaviour of a stream from one list of frames, and keeps nothing that follows from
// the list.
type reference struct {
	mode   stream.Mode
	window int
	frames []*entry // all accepted, in order
	closed bool
	log    []string
}

type entry struct {
	seq      uint64
	must     bool
	model    *stream.Model
	deadline stream.Instant
	phase    phase
	ending   string // set when ended
	empty    bool   // completed no request: the result is not from a run
	parts    int    // emitted and not pushed
	request  *stream.Request
	running  bool // still held by a batch
}

type phase int

const (
	waits    phase = iota
	inFlight       // bound
	ended          // not pushed
	pushed
)

func (m *reference) in(p phase) (out []*entry) {
	for _, e := range m.frames {
		if e.phase == p {
			out = append(out, e)
		}
	}
	return out
}

func (m *reference) push(e *entry) {
	for ; e.parts > 0; e.parts-- {
		m.log = append(m.log, fmt.Sprint(e.seq, " part"))
	}
	m.log = append(m.log, fmt.Sprint(e.seq, " ", e.ending))
	e.phase = pushed
}

// turn returns the frames not yet pushed.
func (m *reference) turn() (out []*entry) {
	for _, e := range m.frames {
		if e.phase != pushed {
			out = append(out, e)
		}
	}
	return out
}

func (m *reference) end(e *entry, ending string) {
	unbound := e.phase == waits
	e.phase, e.ending = ended, ending
	if m.mode == stream.Latest && unbound && !e.empty {
		m.push(e)
	}
	m.deliver()
}

func (m *reference) deliver() {
	turn := m.turn()
	last := -1
	for i, e := range turn {
		if m.mode == stream.Latest && e.ending == "result" && !e.empty {
			last = i
		}
	}
	for i, e := range turn {
		switch {
		case e.phase == ended:
		case i < last && !e.must:
			e.ending = "drop overtaken"
		default:
			for ; e.parts > 0; e.parts-- {
				m.log = append(m.log, fmt.Sprint(e.seq, " part"))
			}
			return
		}
		m.push(e)
	}
}

// machine runs a stream and its reference through the same steps.
type machine struct {
	*bench
	ref    *reference
	policy stream.Policy
	model  *stream.Model
	models []*stream.Model
	holder *entry      // of a stateful model's token
	states map[int]int // how often each was released
	owner  map[int]*stream.Model
	next   int
}

func (m *machine) keepState(r *stream.Request) {
	m.next++
	id := m.next
	m.states[id], m.owner[id] = 0, m.model
	r.SetState(id, func(v any) {
		m.states[v.(int)]++
	})
}

func (m *machine) submit(t *rapid.T, isMust bool) {
	class := 0
	if rapid.Float64Range(0, 1).Draw(t, "odd") < 0.1 {
		class = 1
	}
	empty := m.model.Assembly != nil && rapid.IntRange(0, 2).Draw(t, "empty") == 0
	deadline := time.Duration(rapid.SampledFrom([]int{0, 0, 5, 20}).Draw(t, "deadline")) * time.Millisecond
	refused := m.ref.closed
	if !refused {
		n := 0
		if m.ref.mode == stream.Every {
			n = len(m.ref.turn())
		} else if isMust {
			for _, e := range m.ref.in(waits) {
				if e.must {
					n++
				}
			}
		}
		refused = n >= m.ref.window
	}
	seq := m.seq
	err := m.offer(func(f *stream.Frame) {
		f.Must, f.Deadline = isMust, deadline
		if class == 1 {
			unknown(f)
		}
		if empty {
			f.CaptureUS = completesNothing
		}
	})
	if refused != (err != nil) {
		t.Fatalf("refused: %v, want %v", err, refused)
	}
	if refused {
		return
	}
	e := &entry{seq: seq, must: isMust, model: m.model, empty: empty}
	if deadline > 0 && !isMust {
		e.deadline = m.now.Add(deadline)
	}
	if a := m.policy.MaxAge; a > 0 && !isMust && (deadline == 0 || a < deadline) {
		e.deadline = m.now.Add(a)
	}
	old := m.ref.in(waits)
	m.ref.frames = append(m.ref.frames, e)
	switch {
	case empty:
		m.ref.end(e, "result")
		return
	case class == 1:
		m.ref.end(e, "error invalid_argument")
		return
	}
	if m.ref.mode == stream.Latest {
		for _, o := range old {
			if !o.must {
				m.ref.end(o, "drop superseded")
			}
		}
	}
}

func (m *machine) take(t *rapid.T) {
	if m.ep.queued() == 0 {
		t.Skip("no token")
	}
	predict := time.Duration(rapid.IntRange(0, 8).Draw(t, "predict")) * time.Millisecond
	leave := rapid.IntRange(0, 3).Draw(t, "leave") == 0
	token := m.ep.pop()
	r, kept, left := m.TakeFiltered(m.now, 4, nil, predict, func(*stream.Request) bool { return leave })
	if kept {
		t.Fatal("a frame of one row did not fit")
	}
	var want *entry
	for _, e := range m.ref.in(waits) {
		if e.deadline != 0 && m.now.Add(predict) > e.deadline {
			m.ref.end(e, "drop stale")
			continue
		}
		want = e
		break
	}
	if left != (leave && want != nil) || left && r != nil {
		t.Fatalf("left %v, want %v", left, leave && want != nil)
	}
	switch {
	case left:
		m.ep.Enqueue(token, nil) // the caller still holds the token
		return
	case want == nil && r == nil:
		return
	case want == nil || r == nil || r.Seq != want.seq:
		t.Fatalf("took %v, want %v", r, want)
	}
	want.phase, want.request, want.running, want.model = inFlight, r, true, m.model
	if m.model.Stateful {
		if m.holder != nil {
			t.Fatal("two frames of a stateful model in flight")
		}
		m.holder = want
		if id, ok := m.Kept().(int); !ok {
			m.keepState(r)
		} else if m.owner[id] != m.model {
			t.Fatal("the state of another model")
		}
	}
}

func (m *machine) running() (out []*entry) {
	for _, e := range m.ref.frames {
		if e.running {
			out = append(out, e)
		}
	}
	return out
}

func (m *machine) pick(t *rapid.T) *entry {
	all := m.running()
	if len(all) == 0 {
		t.Skip("nothing runs")
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
}

func (m *machine) finish(t *rapid.T) {
	e := m.pick(t)
	how := rapid.SampledFrom([]string{"result", "result", "result", "error internal", "drop memory"}).Draw(t, "how")
	if m.holder == e && rapid.Bool().Draw(t, "detach") {
		e.request.DetachState()
	}
	var counted bool
	switch how {
	case "result":
		counted = answer(m.mem, e.request)
	case "drop memory":
		counted = e.request.Drop(stream.Memory)
	default:
		counted = e.request.Fail(errors.New("no"))
	}
	if counted != (e.phase == inFlight) {
		t.Fatalf("frame %d: counted %v in phase %d", e.seq, counted, e.phase)
	}
	if m.holder == e {
		m.holder = nil
	}
	if counted {
		m.ref.end(e, how)
	}
}

func (m *machine) emit(t *rapid.T) {
	e := m.pick(t)
	l, _ := m.mem.Copy([]byte("part"))
	ok := e.request.Emit(nil, l)
	if ok != (e.phase == inFlight) {
		t.Fatalf("emitted %v in phase %d", ok, e.phase)
	}
	if ok {
		e.parts++
		if m.ref.turn()[0] == e {
			m.ref.log = append(m.ref.log, fmt.Sprint(e.seq, " part"))
			e.parts--
		}
	}
}

// returned ends a run: the batch releases the memory.
func (m *machine) returned(t *rapid.T) {
	e := m.pick(t)
	if e.phase == inFlight {
		t.Skip("not answered")
	}
	m.unbind(e)
}

func (m *machine) unbind(e *entry) {
	e.request.Unbind()
	e.running = false
}

func (m *machine) close(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
		t.Skip("continues")
	}
	ending := "drop closed"
	if rapid.Bool().Draw(t, "by unload") {
		m.CloseWith(stream.ByUnload, stream.Errorf(stream.Unloaded, "", "unloaded"))
		ending = "error unloaded"
	} else {
		m.Close(stream.ClientGone)
	}
	if m.ref.closed {
		return
	}
	m.ref.closed = true
	for _, e := range m.ref.in(waits) {
		m.ref.end(e, ending)
	}
}

func (m *machine) move(t *rapid.T) {
	next := m.models[rapid.IntRange(0, len(m.models)-1).Draw(t, "model")]
	if next == m.model {
		t.Skip("already fed")
	}
	done := m.ref.closed && len(m.ref.turn()) == 0
	old := m.ep
	m.ep = &queue{ended: old.ended}
	if moved := m.Move(m.ep, next); moved == done {
		t.Fatalf("moved %v, finished %v", moved, done)
	}
	if done {
		m.ep = old
		return
	}
	if old.waiting != 0 {
		t.Fatalf("%d wait in the old queue", old.waiting)
	}
	m.ForgetToken(old)
	m.model = next
}

func (m *machine) check(t *rapid.T) {
	if got := m.sink.lines(); !slices.Equal(got, m.ref.log) {
		t.Fatalf("pushed %q\nwant   %q", got, m.ref.log)
	}
	if len(m.ep.faults) > 0 {
		t.Fatal(m.ep.faults)
	}
	waiting := len(m.ref.in(waits))
	if m.WaitingFrames() != waiting || m.WaitingRows() != waiting || m.ep.waiting != waiting {
		t.Fatalf("%d frames, %d rows, %d reported, want %d", m.WaitingFrames(), m.WaitingRows(), m.ep.waiting, waiting)
	}
	if n := m.ep.queued(); !m.ref.closed {
		if want := waiting > 0 && m.holder == nil; want && n != 1 || m.holder != nil && n != 0 {
			t.Fatalf("%d tokens with %d waiting, holder %v", n, waiting, m.holder)
		}
	}
	over := m.ref.closed && len(m.ref.turn()) == 0
	select {
	case <-m.Finished():
		if !over {
			t.Fatal("finished too early")
		}
	default:
		if over {
			t.Fatal("not finished")
		}
	}
	for id, n := range m.states {
		if n > 1 {
			t.Fatalf("state %d was released %d times", id, n)
		}
	}
	if id, ok := m.Kept().(int); ok && m.states[id] != 0 {
		t.Fatal("a released state is kept")
	}
	c := m.Counts()
	pending := uint64(0)
	for _, e := range m.ref.frames {
		if e.ending == "" {
			pending++
		}
	}
	if c.Accepted != uint64(len(m.ref.frames)) || c.Accepted != c.Results+c.Drops+c.Errors+pending {
		t.Fatalf("%+v with %d pending of %d", c, pending, len(m.ref.frames))
	}
}

func TestStreamMatchesItsReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := stream.Policy{
			Mode:   rapid.SampledFrom([]stream.Mode{stream.Latest, stream.Every}).Draw(t, "mode"),
			Window: rapid.IntRange(1, 5).Draw(t, "window"),
			MaxAge: time.Duration(rapid.SampledFrom([]int{0, 10}).Draw(t, "age")) * time.Millisecond,
		}
		models := []*stream.Model{anything, stateful("a"), stateful("b"), assembled(anything), assembled(stateful("c"))}
		first := models[rapid.IntRange(0, len(models)-1).Draw(t, "first")]
		m := &machine{
			bench: newBench(first, p), ref: &reference{mode: p.Mode, window: p.Window}, policy: p, model: first,
			models: models,
			states: map[int]int{}, owner: map[int]*stream.Model{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"":        m.check,
			"submit":  func(t *rapid.T) { m.submit(t, false) },
			"submit2": func(t *rapid.T) { m.submit(t, false) },
			"must":    func(t *rapid.T) { m.submit(t, true) },
			"take":    m.take, "take2": m.take,
			"finish": m.finish, "finish2": m.finish,
			"emit": m.emit, "returned": m.returned, "close": m.close, "move": m.move,
			"tick": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 10).Draw(t, "ms")) * time.Millisecond)
			},
			"idle": func(t *rapid.T) {
				idle := len(m.running()) == 0 && len(m.ref.turn()) == 0
				if m.DropIdleState(1<<62) && !idle && m.holder != nil {
					t.Fatal("the state was taken from a frame in flight")
				}
			},
		})
		m.Close(stream.ByClient)
		if !m.ref.closed {
			m.ref.closed = true
			for _, e := range m.ref.in(waits) {
				m.ref.end(e, "drop closed")
			}
		}
		for _, e := range m.running() {
			if e.phase == inFlight {
				e.request.Fail(errors.New("no"))
				m.ref.end(e, "error internal")
			}
			m.unbind(e)
		}
		m.check(t)
		for s := m.ep.pop(); s != nil; s = m.ep.pop() {
			s.ReleaseToken()
		}
		if m.ep.detached != 1 || len(m.sink.done) != 1 || m.mem.Stats().Leases != 0 {
			t.Fatalf("detached %d times, done %d times, %d leases", m.ep.detached, len(m.sink.done),
				m.mem.Stats().Leases)
		}
		for id, n := range m.states {
			if n != 1 {
				t.Fatalf("state %d was released %d times", id, n)
			}
		}
		if m.ep.ended != len(m.ref.frames) {
			t.Fatalf("%d endings reported of %d", m.ep.ended, len(m.ref.frames))
		}
	})
}
