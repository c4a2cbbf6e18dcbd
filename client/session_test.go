package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/client"
	"millrace/stream"
)

// testTimeout bounds every wait in these tests.
func testTimeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func session(t *testing.T, c *client.Client, o client.SessionOptions) *client.Session {
	t.Helper()
	s, err := c.Session(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func openStream(t *testing.T, s *client.Session, model string, o client.StreamOptions) *client.Stream {
	t.Helper()
	st, err := s.Open(testTimeout(t), model, o)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// endingLog records the ending of each frame, and fails the test if a frame ends twice or out of order.
type endingLog struct {
	t       *testing.T
	ordered bool
	mu      sync.Mutex
	ends    map[uint64]string
	next    uint64
	results uint64 // no results follow for earlier frames
	count   map[string]int
	content func(r client.Reply) string // "" = correct
}

func newEndingLog(t *testing.T, ordered bool) *endingLog {
	return &endingLog{t: t, ordered: ordered, ends: map[uint64]string{}, count: map[string]int{}}
}

func (b *endingLog) reply(r client.Reply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was := b.ends[r.Seq]; was != "" {
		b.t.Errorf("frame %d ended twice: %s, then %+v", r.Seq, was, r)
	}
	if b.ordered && r.Seq < b.next {
		b.t.Errorf("frame %d ends behind %d", r.Seq, b.next-1)
	}
	b.next = r.Seq + 1
	how := "result"
	switch {
	case r.Lost:
		how = "lost"
		if r.Err == nil || r.Answered() {
			b.t.Errorf("lost without an error: %+v", r)
		}
	case r.Err != nil:
		how = string(stream.CodeOf(r.Err))
	case r.Dropped != "":
		how = string(r.Dropped)
	default:
		if r.Seq < b.results {
			b.t.Errorf("the result of frame %d comes behind that of %d", r.Seq, b.results-1)
		}
		b.results = r.Seq + 1
		if b.content == nil {
			break
		}
		if what := b.content(r); what != "" {
			b.t.Errorf("frame %d: %s", r.Seq, what)
		}
	}
	b.ends[r.Seq] = how
	b.count[how]++
}

func (b *endingLog) counts() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]int{}
	for k, n := range b.count {
		out[k] = n
	}
	return out
}

func (b *endingLog) total() (n int) {
	for _, c := range b.counts() {
		n += c
	}
	return n
}

// says checks that an echo has its own text.
func says(r client.Reply) string {
	want := fmt.Sprintf("frame %d", r.Seq)
	if len(r.Outputs) != 1 || !strings.HasSuffix(string(r.Outputs[0].Data), want) {
		return fmt.Sprintf("%+v instead of %q", r.Outputs, want)
	}
	return ""
}

var every = stream.Policy{Mode: stream.Every, Window: 8}

func TestSession(t *testing.T) {
	c, _ := serve(t, "same=identity", "eyes=motion,width=64,height=48")
	ticket := func(ctx context.Context) (string, error) { return c.Ticket(ctx) }
	s := session(t, c, client.SessionOptions{Ticket: ticket})
	ctx := testTimeout(t)
	for _, form := range []client.Outputs{client.JSON, client.Binary, client.None} {
		st := openStream(t, s, "same", client.StreamOptions{Codec: "opaque", Outputs: form, Policy: every})
		if p := st.Policy(); p.Mode != stream.Every || p.Window != 8 {
			t.Errorf("%+v", p)
		}
		const n = 100
		go func() {
			for i := range n {
				if seq, err := st.Send(ctx, client.Frame{Data: fmt.Appendf(nil, "frame %d", i),
					CaptureUS: int64(i) - 3}); err != nil || seq != uint64(i) {
					t.Errorf("Send %d: %d, %v", i, seq, err)
				}
			}
		}()
		for i := range n {
			r := <-st.Replies()
			if r.Seq != uint64(i) || !r.Answered() || r.CaptureUS != int64(i)-3 || r.Model != "same" ||
				r.Version != "1" || r.Batch < 1 || r.Timing.Total <= 0 || r.Sent.IsZero() || r.Params != nil {
				t.Fatalf("%s, reply %d: %+v, %v", form, i, r, st.Err())
			}
			if what := says(r); what != "" && form != client.None {
				t.Errorf("%s: %s", form, what)
			}
		}
		got, err := st.Close(ctx)
		if err != nil || got != (client.Totals{Received: n, Accepted: n, Results: n}) {
			t.Errorf("%+v, %v", got, err)
		}
		if _, ok := <-st.Replies(); ok {
			t.Error("a reply after the end")
		}
		_, err = st.Send(ctx, client.Frame{Data: []byte("late")})
		wantCode(t, err, stream.Canceled)
	}
}

// Two models over one connection: pictures, tensors, samples, and errors.
func TestSessionFrames(t *testing.T) {
	c, _ := serve(t, "same=identity", "eyes=motion,width=64,height=48")
	s := session(t, c, client.SessionOptions{})
	ctx := testTimeout(t)
	eyes := openStream(t, s, "eyes", client.StreamOptions{})
	same := openStream(t, s, "same", client.StreamOptions{Codec: "opaque"})
	for _, f := range []client.Frame{
		{Inputs: []stream.Tensor{fp32("x", 1, 2.5), fp32("y", 3)}}, {Data: []byte{1, 2, 3, 4}, Codec: "pcm16"},
		{Data: []byte("x"), Params: stream.Params{"n": 3}, Must: true, Deadline: time.Second},
	} {
		if _, err := same.Send(ctx, f); err != nil {
			t.Fatal(err)
		}
		r := <-same.Replies()
		if !r.Answered() || f.Inputs != nil && (len(r.Outputs) != 2 ||
			string(r.Outputs[0].Data) != string(f.Inputs[0].Data) || r.Outputs[1].Name != "y") {
			t.Errorf("%+v", r)
		}
	}
	for i, want := range []struct {
		f    client.Frame
		code stream.Code
	}{
		{client.Frame{Data: picture(t, 96, 80)}, ""}, {client.Frame{Data: []byte("no picture")}, stream.Unsupported},
		{client.Frame{Data: make([]byte, 10), Codec: "rgb24", Width: 9, Height: 9}, stream.InvalidArgument},
	} {
		if _, err := eyes.Send(ctx, want.f); err != nil {
			t.Fatal(err)
		}
		r := <-eyes.Replies()
		if r.Seq != uint64(i) || stream.CodeOf(r.Err) != want.code ||
			want.code == "" && (r.Width != 96 || len(r.Outputs) != 2) {
			t.Errorf("%+v", r)
		}
	}
	for _, f := range []client.Frame{
		{Data: []byte("x"), Codec: "film"}, {Data: []byte("x"), Inputs: []stream.Tensor{fp32("x", 1)}},
		{Data: []byte("x"), Width: -1}, {Data: []byte("x"), Deadline: time.Hour},
		{Data: []byte("x"), Trace: "short"}, {Data: []byte("x"), Params: stream.Params{"f": func() {}}},
		{Inputs: []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{2}, Data: []byte("abc")}}},
	} {
		_, err := eyes.Send(ctx, f)
		wantCode(t, err, stream.InvalidArgument)
	}
	_, err := eyes.Send(ctx, client.Frame{Data: make([]byte, 1<<20)})
	wantCode(t, err, stream.TooLarge)
	wantCode(t, eyes.Update(client.Update{Window: new(-1)}), stream.InvalidArgument)
	wantCode(t, eyes.Update(client.Update{Params: stream.Params{"p": []int{1}}}), stream.InvalidArgument)

	wantCode(t, eyes.Configure("jpeg", nil), stream.InvalidArgument)

	_, err = s.Open(ctx, "none", client.StreamOptions{})
	wantCode(t, err, stream.NotFound)
	_, err = s.Open(ctx, "same", client.StreamOptions{Codec: "film"})
	wantCode(t, err, stream.InvalidArgument)
	_ = s.Close()
	_, err = s.Open(ctx, "same", client.StreamOptions{})
	wantCode(t, err, stream.Canceled)
	if s.Err() != nil {
		t.Error(s.Err())
	}
	_, err = c.Session(ctx, client.SessionOptions{Ticket: func(context.Context) (string, error) {
		return "forged", nil
	}})
	wantCode(t, err, stream.Unauthenticated)
}

// A server that shuts down notifies all sessions.
func TestSessionDrained(t *testing.T) {
	c, stop := serve(t, "same=identity", "slow=delay,fixed=50ms")
	state := newChanges()
	s := session(t, c, client.SessionOptions{OnConnection: state.add})
	b, first := newEndingLog(t, true), make(chan struct{})
	st := openStream(t, s, "slow", client.StreamOptions{Codec: "opaque", Policy: every, OnReply: func(r client.Reply) {
		if b.reply(r); r.Seq == 0 {
			close(first)
		}
	}})
	for range 5 {
		if _, err := st.Send(testTimeout(t), client.Frame{Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	<-first
	stop()
	<-s.Done()
	for _, err := range []error{s.Err(), st.Err()} {
		wantCode(t, err, stream.Draining)
		if err == nil || !strings.Contains(err.Error(), "shutting down") {
			t.Error(err)
		}
	}
	_, err := st.Send(testTimeout(t), client.Frame{Data: []byte("x")})
	wantCode(t, err, stream.Draining)
	_, err = s.Open(testTimeout(t), "same", client.StreamOptions{})
	wantCode(t, err, stream.Draining)
	if n := b.total(); n != 5 || b.counts()["result"] == 0 || state.of(client.ConnectionLost) != 0 {
		t.Errorf("%v, %v", b.counts(), state.count)
	}
}

// Unloading a model ends only the streams of the model.
func TestSessionUnloaded(t *testing.T) {
	c, _ := serve(t, "same=identity", "other=identity")
	s := session(t, c, client.SessionOptions{})
	same := openStream(t, s, "same", client.StreamOptions{Codec: "opaque"})
	other := openStream(t, s, "other", client.StreamOptions{Codec: "opaque"})
	if err := c.Unload(t.Context(), "same"); err != nil {
		t.Fatal(err)
	}
	<-same.Done()
	wantCode(t, same.Err(), stream.Unloaded)
	_, _, err := same.TrySend(client.Frame{Data: []byte("x")})
	wantCode(t, err, stream.Unloaded)
	wantCode(t, same.Pause(), stream.Unloaded)
	if _, err := other.Send(testTimeout(t), client.Frame{Data: []byte("x"), Last: true}); err != nil {
		t.Fatal(err)
	}
	if r := <-other.Replies(); !r.Answered() {
		t.Errorf("%+v", r)
	}
	<-other.Done() // the last stream
	if other.Err() != nil || s.Err() != nil {
		t.Errorf("%v, %v", other.Err(), s.Err())
	}
}

// Credit, and requests on a stream.
func TestSessionCredit(t *testing.T) {
	c, _ := serve(t, "same=identity")
	s := session(t, c, client.SessionOptions{})
	ctx := testTimeout(t)
	try := func(st *client.Stream) (n int) {
		t.Helper()
		for {
			_, ok, err := st.TrySend(client.Frame{Data: []byte("x")})
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return n
			}
			n++
		}
	}
	for _, mode := range []stream.Mode{stream.Every, stream.Latest} {
		st := openStream(t, s, "same", client.StreamOptions{Codec: "opaque",
			Policy: stream.Policy{Mode: mode, Window: 2}})
		if err := st.Pause(); err != nil {
			t.Fatal(err)
		}
		n := try(st)
		if mode == stream.Every && n != 2 {
			t.Errorf("%d frames within a window of 2", n)
		}
		if mode == stream.Every {
			if err := st.Update(client.Update{Window: new(5)}); err != nil {
				t.Fatal(err)
			}
			for n < 5 { // the server sends more credit
				if _, err := st.Send(ctx, client.Frame{Data: []byte("x")}); err != nil {
					t.Fatal(err)
				}
				n++
			}
			if more := try(st); more != 0 {
				t.Errorf("%d frames more than a window of 5", more)
			}
			short, cancel := context.WithCancel(ctx)
			cancel()
			_, err := st.Send(short, client.Frame{Data: []byte("x")})
			wantCode(t, err, stream.Canceled)
			if err := st.Flush(); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if r := <-st.Replies(); r.Seq != uint64(i) || r.Dropped != stream.Flushed {
					t.Errorf("%+v", r)
				}
			}
			if err := st.Update(client.Update{Window: new(1)}); err != nil { // a smaller window takes effect at once
				t.Fatal(err)
			}
			if n = try(st); n != 1 {
				t.Errorf("%d frames within a window of 1", n)
			}
		}
		if err := st.Resume(); err != nil {
			t.Fatal(err)
		}
		if err := st.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		got, err := st.Close(ctx)
		if err != nil || got.Received != got.Results+got.Drops || got.Results < 1 {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

// An abandoned session does not wait for replies to be received.
func TestSessionAbandoned(t *testing.T) {
	c, _ := serve(t, "same=identity", "slow=delay,fixed=500ms")
	why := errors.New("no more")
	ctx, cancel := context.WithCancelCause(t.Context())
	s, err := c.Session(ctx, client.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	full := openStream(t, s, "same", client.StreamOptions{Codec: "opaque", Buffer: 1})
	for range 20 {
		if _, err := full.Send(testTimeout(t), client.Frame{Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	gone, end := context.WithCancel(ctx)
	end()
	_, err = full.Close(gone) // and the session continues
	wantCode(t, err, stream.Canceled)
	<-full.Done()
	slow := openStream(t, s, "slow", client.StreamOptions{Codec: "opaque", Policy: every})
	if _, err := slow.Send(testTimeout(t), client.Frame{Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	cancel(why)
	<-s.Done()
	if r := <-slow.Replies(); !r.Lost {
		t.Errorf("%+v", r)
	}
	if !errors.Is(s.Err(), why) || !errors.Is(slow.Err(), why) {
		t.Errorf("%v, %v", s.Err(), slow.Err())
	}
	_, err = c.Session(ctx, client.SessionOptions{})
	if !errors.Is(err, why) {
		t.Error(err)
	}
}
