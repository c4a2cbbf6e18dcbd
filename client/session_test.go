package client_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/client"
	"millrace/stream"
)

// patience bounds every wait in these tests; none should come near it.
func patience(t *testing.T) context.Context {
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

func channel(t *testing.T, s *client.Session, model string, o client.ChannelOptions) *client.Channel {
	t.Helper()
	ch, err := s.Open(patience(t), model, o)
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// book keeps how each frame ended, and complains of one that ends twice or out
// of order.
type book struct {
	t       *testing.T
	ordered bool
	mu      sync.Mutex
	ends    map[uint64]string
	next    uint64
	count   map[string]int
	content func(r client.Reply) string // "" = as it should be
}

func newBook(t *testing.T, ordered bool) *book {
	return &book{t: t, ordered: ordered, ends: map[uint64]string{}, count: map[string]int{}}
}

func (b *book) reply(r client.Reply) {
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
	case b.content != nil:
		if what := b.content(r); what != "" {
			b.t.Errorf("frame %d: %s", r.Seq, what)
		}
	}
	b.ends[r.Seq] = how
	b.count[how]++
}

func (b *book) counts() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]int{}
	for k, n := range b.count {
		out[k] = n
	}
	return out
}

func (b *book) total() (n int) {
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
	ctx := patience(t)
	for _, form := range []client.Outputs{client.JSON, client.Binary, client.None} {
		ch := channel(t, s, "same", client.ChannelOptions{Codec: "opaque", Outputs: form, Policy: every})
		if p := ch.Policy(); p.Mode != stream.Every || p.Window != 8 {
			t.Errorf("%+v", p)
		}
		const n = 100
		go func() {
			for i := range n {
				if seq, err := ch.Send(ctx, client.Frame{Data: fmt.Appendf(nil, "frame %d", i), CaptureUS: int64(i) - 3}); err != nil || seq != uint64(i) {
					t.Errorf("Send %d: %d, %v", i, seq, err)
				}
			}
		}()
		for i := range n {
			r := <-ch.Replies()
			if r.Seq != uint64(i) || !r.Answered() || r.CaptureUS != int64(i)-3 || r.Model != "same" || r.Version != "1" || r.Batch < 1 || r.Timing.Total <= 0 || r.Sent.IsZero() || r.Params != nil {
				t.Fatalf("%s, reply %d: %+v, %v", form, i, r, ch.Err())
			}
			if what := says(r); what != "" && form != client.None {
				t.Errorf("%s: %s", form, what)
			}
		}
		got, err := ch.Close(ctx)
		if err != nil || got != (client.Totals{Received: n, Accepted: n, Results: n}) {
			t.Errorf("%+v, %v", got, err)
		}
		if _, ok := <-ch.Replies(); ok {
			t.Error("a reply after the end")
		}
		_, err = ch.Send(ctx, client.Frame{Data: []byte("late")})
		wantCode(t, err, stream.Canceled)
	}

	// Two models over one connection, pictures and tensors.
	eyes := channel(t, s, "eyes", client.ChannelOptions{})
	same := channel(t, s, "same", client.ChannelOptions{Codec: "opaque"})
	for _, f := range []client.Frame{
		{Inputs: []stream.Tensor{fp32("x", 1, 2.5), fp32("y", 3)}}, {Data: []byte{1, 2, 3, 4}, Codec: "pcm16"}, {Data: []byte("x"), Params: stream.Params{"n": 3}, Must: true, Deadline: time.Second},
	} {
		if _, err := same.Send(ctx, f); err != nil {
			t.Fatal(err)
		}
		r := <-same.Replies()
		if !r.Answered() || f.Inputs != nil && (len(r.Outputs) != 2 || string(r.Outputs[0].Data) != string(f.Inputs[0].Data) || r.Outputs[1].Name != "y") {
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
		if r.Seq != uint64(i) || stream.CodeOf(r.Err) != want.code || want.code == "" && (r.Width != 96 || len(r.Outputs) != 2) {
			t.Errorf("%+v", r)
		}
	}
	for _, f := range []client.Frame{
		{Data: []byte("x"), Codec: "film"}, {Data: []byte("x"), Inputs: []stream.Tensor{fp32("x", 1)}}, {Data: []byte("x"), Width: -1}, {Data: []byte("x"), Deadline: time.Hour},
		{Data: []byte("x"), Codec: "jpeg", Config: true}, {Data: []byte("x"), Trace: "short"}, {Data: []byte("x"), Params: stream.Params{"f": func() {}}},
		{Inputs: []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{2}, Data: []byte("abc")}}},
	} {
		_, err := eyes.Send(ctx, f)
		wantCode(t, err, stream.InvalidArgument)
	}
	_, err := eyes.Send(ctx, client.Frame{Data: make([]byte, 1<<20)})
	wantCode(t, err, stream.TooLarge)
	wantCode(t, eyes.Update(stream.Policy{Mode: stream.Every}), stream.Conflict)

	_, err = s.Open(ctx, "none", client.ChannelOptions{})
	wantCode(t, err, stream.NotFound)
	_, err = s.Open(ctx, "same", client.ChannelOptions{Codec: "film"})
	wantCode(t, err, stream.InvalidArgument)
	_ = s.Close()
	_, err = s.Open(ctx, "same", client.ChannelOptions{})
	wantCode(t, err, stream.Canceled)
	if s.Err() != nil {
		t.Error(s.Err())
	}
	_, err = c.Session(ctx, client.SessionOptions{Ticket: func(context.Context) (string, error) { return "forged", nil }})
	wantCode(t, err, stream.Unauthenticated)
}
