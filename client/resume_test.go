package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/client"
	"millrace/stream"
)

// cutter is a TCP proxy that cuts connections. For the nth connection, from 0, plan returns the numbers of bytes to
// and from the server before the cut; negative = never. Every third cut is a reset, with loss of bytes in transit.
type cutter struct {
	ln     net.Listener
	target atomic.Pointer[string]
	plan   func(n int) (up, down int)

	mu     sync.Mutex
	open   map[int]func()
	n      int
	refuse bool
	over   sync.WaitGroup
}

func cut(t *testing.T, c *client.Client, plan func(n int) (up, down int)) (*cutter, *client.Client) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &cutter{ln: ln, plan: plan, open: map[int]func(){}}
	p.to(c)
	via, err := client.New(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	p.over.Go(p.accept)
	t.Cleanup(func() {
		via.Close()
		_ = ln.Close()
		p.cutAll(true)
		p.over.Wait()
	})
	return p, via
}

// to sends new connections to another server.
func (p *cutter) to(c *client.Client) {
	addr := c.Addr()[len("http://"):]
	p.target.Store(&addr)
}

func (p *cutter) accept() {
	for {
		near, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		n, refuse := p.n, p.refuse
		if !refuse {
			p.n++
		}
		p.mu.Unlock()
		if refuse {
			_ = near.Close()
			continue
		}
		far, err := net.Dial("tcp", *p.target.Load())
		if err != nil {
			_ = near.Close()
			continue
		}
		end := sync.OnceFunc(func() {
			for _, c := range []net.Conn{near, far} {
				if n%3 == 2 {
					_ = c.(*net.TCPConn).SetLinger(0)
				}
				_ = c.Close()
			}
			p.mu.Lock()
			delete(p.open, n)
			p.mu.Unlock()
		})
		p.mu.Lock()
		p.open[n] = end
		p.mu.Unlock()
		up, down := p.plan(n)
		p.over.Go(func() { carry(far, near, up); end() })
		p.over.Go(func() { carry(near, far, down); end() })
	}
}

func carry(to, from net.Conn, most int) {
	if most < 0 {
		_, _ = io.Copy(to, from)
		return
	}
	_, _ = io.CopyN(to, from, int64(most))
}

// cutAll cuts all connections; refuse sets whether new connections are refused.
func (p *cutter) cutAll(refuse bool) {
	p.mu.Lock()
	p.refuse = refuse
	var all []func()
	for _, end := range p.open {
		all = append(all, end)
	}
	p.mu.Unlock()
	for _, end := range all {
		end()
	}
}

// changes counts the changes of a session's connection.
type changes struct {
	mu    sync.Mutex
	count map[client.ConnectionState]int
	next  chan client.ConnectionChange
}

func newChanges() *changes {
	return &changes{count: map[client.ConnectionState]int{}, next: make(chan client.ConnectionChange, 1024)}
}

func (l *changes) add(k client.ConnectionChange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count[k.State]++
	l.next <- k
}

func (l *changes) of(s client.ConnectionState) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count[s]
}

func never(int) (up, down int) { return -1, -1 }

// Frames to two models while the connection is cut repeatedly, within messages, handshakes
// and replies: each frame ends exactly once.
func TestSessionCut(t *testing.T) {
	for seed, form := range []client.Outputs{client.Binary, client.JSON, client.Binary} {
		t.Run(fmt.Sprintf("%s,%d", form, seed), func(t *testing.T) { t.Parallel(); cuts(t, form, uint64(seed)) })
	}
}

func cuts(t *testing.T, form client.Outputs, seed uint64) {
	c, _ := serve(t, "same=identity", "slow=delay,fixed=3ms")
	_, via := cut(t, c, func(n int) (up, down int) {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		switch {
		case n > 14:
			return -1, -1
		case n > 0 && r.IntN(4) == 0: // during or soon after a handshake
			return 50 + r.IntN(1000), -1
		case n > 0 && r.IntN(4) == 0: // partly after attach: the reply is lost, and so is the session
			return -1, 200 + r.IntN(500)
		case r.IntN(2) == 0:
			return 1000 + r.IntN(40000), -1
		}
		return -1, 1000 + r.IntN(60000)
	})
	state := newChanges()
	s := session(t, via, client.SessionOptions{OnConnection: state.add})
	ctx := testTimeout(t)
	const n = 1000
	sameBook, slowBook := newEndingLog(t, true), newEndingLog(t, false)
	sameBook.content = says
	same := openStream(t, s, "same", client.StreamOptions{Codec: "opaque", Outputs: form, Policy: every,
		OnReply: sameBook.reply})
	slow := openStream(t, s, "slow", client.StreamOptions{Codec: "opaque", Outputs: form, OnReply: slowBook.reply})
	for i := range n {
		pad := bytes.Repeat([]byte("."), 200)
		for _, st := range []*client.Stream{same, slow} {
			if seq, err := st.Send(ctx, client.Frame{Data: fmt.Appendf(pad, "frame %d", i)}); err != nil ||
				seq != uint64(i) {
				t.Fatalf("Send %d: %d, %v", i, seq, err)
			}
		}
	}
	for _, st := range []*client.Stream{same, slow} {
		if err := st.Drain(ctx); err != nil {
			t.Fatalf("%v; %d wait", err, st.Waiting())
		}
	}
	for st, b := range map[*client.Stream]*endingLog{same: sameBook, slow: slowBook} {
		counts := b.counts()
		t.Log(counts)
		got, err := st.Close(ctx)
		if err != nil || b.total() != n || len(b.ends) != n {
			t.Errorf("%d frames ended, %d times: %v; %v", len(b.ends), b.total(), counts, err)
		}
		if counts["flow_control"] != 0 || counts["result"] == 0 || counts["lost"] > n/2 {
			t.Errorf("%v", counts)
		}
		t.Logf("%+v", got)
		// With the policy "every" the server keeps as many endings as frames can be in flight.
		if st == same && state.of(client.ConnectionReopened) == 0 && (got.Results != uint64(counts["result"]) ||
			got.Received+uint64(counts["lost"]) != n) {
			t.Errorf("the server counts %+v, the client %v", got, counts)
		}
	}
	t.Log(state.count)
	if state.of(client.ConnectionLost) < 5 || state.of(client.ConnectionResumed) == 0 {
		t.Errorf("%v", state.count)
	}
}

// A frame with a cut message is lost, the frames before and after are not, and the counts of server and client agree.
func TestSessionFrameLost(t *testing.T) {
	c, _ := serve(t, "same=identity")
	_, via := cut(t, c, func(n int) (up, down int) {
		if n == 0 {
			return 20000, -1
		}
		return -1, -1
	})
	state := newChanges()
	s := session(t, via, client.SessionOptions{OnConnection: state.add})
	ctx := testTimeout(t)
	b := newEndingLog(t, true)
	st := openStream(t, s, "same", client.StreamOptions{Codec: "opaque", Policy: every, OnReply: b.reply})
	idle := openStream(t, s, "same", client.StreamOptions{}) // has received nothing before resuming
	for _, size := range []int{10, 50000, 20} {
		if _, err := st.Send(ctx, client.Frame{Data: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
		if err := st.Drain(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if b.ends[0] != "result" || b.ends[1] != "lost" || b.ends[2] != "result" ||
		state.of(client.ConnectionResumed) != 1 {
		t.Errorf("%v, %v", b.ends, state.count)
	}
	if got, err := st.Close(ctx); err != nil || got.Received != 2 || got.Results != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := idle.Send(ctx, client.Frame{Data: []byte("x")}); err != nil {
		t.Error(err)
	}
	if r := <-idle.Replies(); !r.Answered() {
		t.Errorf("%+v", r)
	}
}

// After the loss of a chunk of video, OnAdvice asks for a key frame.
func TestSessionKeyFrame(t *testing.T) {
	c, _ := serve(t, "eyes=motion")
	_, via := cut(t, c, func(n int) (up, down int) {
		if n == 0 {
			return 20000, -1
		}
		return -1, -1
	})
	s := session(t, via, client.SessionOptions{})
	advice := make(chan client.Advice, 10)
	film := openStream(t, s, "eyes", client.StreamOptions{Codec: "h264", OnAdvice: func(a client.Advice) {
		advice <- a
	}})
	still := openStream(t, s, "eyes", client.StreamOptions{OnAdvice: func(client.Advice) {
		t.Error("advice about pictures")
	}})
	if _, err := film.Send(testTimeout(t), client.Frame{Data: make([]byte, 50000), Key: true}); err != nil {
		t.Fatal(err)
	}
	if r := <-film.Replies(); !r.Lost {
		t.Errorf("%+v", r)
	}
	if a := <-advice; a != (client.Advice{KeyFrame: true}) {
		t.Errorf("%+v", a)
	}
	if _, err := still.Close(testTimeout(t)); err != nil {
		t.Error(err)
	}
}

// An ending in transit during a cut is lost if too large for the server to keep.
func TestSessionEndingLost(t *testing.T) {
	c, _ := serve(t, "same=identity")
	_, via := cut(t, c, func(n int) (up, down int) {
		if n == 0 {
			return -1, 100000
		}
		return -1, -1
	})
	s := session(t, via, client.SessionOptions{})
	ctx := testTimeout(t)
	b := newEndingLog(t, true)
	st := openStream(t, s, "same", client.StreamOptions{Codec: "opaque", Policy: every, OnReply: b.reply})
	// No result is sent before all frames have arrived: only endings are lost.
	if err := st.Pause(); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{10, 400000, 20} {
		if _, err := st.Send(ctx, client.Frame{Data: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := st.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	if b.ends[0] != "result" || b.ends[1] != "lost" || b.ends[2] != "result" {
		t.Errorf("%v", b.ends)
	}
	if got, err := st.Close(ctx); err != nil || got.Received != 3 || got.Results != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

// After a restart of the server the streams are opened again, and OnConnection is called.
func TestSessionReopened(t *testing.T) {
	c, stop := serve(t, "slow=delay,fixed=200ms")
	p, via := cut(t, c, never)
	state := newChanges()
	s := session(t, via, client.SessionOptions{OnConnection: state.add})
	ctx := testTimeout(t)
	b := newEndingLog(t, true)
	st := openStream(t, s, "slow", client.StreamOptions{Codec: "opaque", Policy: every, OnReply: b.reply})
	if err := st.Update(client.Update{Window: new(3)}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := st.Send(ctx, client.Frame{Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	p.cutAll(true)
	if l := <-state.next; l.State != client.ConnectionLost || stream.CodeOf(l.Err) != stream.Unavailable {
		t.Errorf("%+v", l)
	}
	stop()
	other, _ := serve(t, "slow=delay,fixed=1ms")
	if _, ok, err := st.TrySend(client.Frame{Data: []byte("x")}); ok || err != nil {
		t.Errorf("sent without a connection, %v", err)
	}
	p.to(other)
	p.cutAll(false)
	if l := <-state.next; l.State != client.ConnectionReopened || l.Err != nil {
		t.Errorf("%+v", l)
	}
	for range 5 {
		if _, err := st.Send(ctx, client.Frame{Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	if got := b.counts(); got["lost"] != 3 || got["result"] != 5 || st.Policy().Window != 3 {
		t.Errorf("%v, %+v", got, st.Policy())
	}

	// Now without the model.
	p.cutAll(true)
	<-state.next
	if err := other.Unload(ctx, "slow"); err != nil {
		t.Fatal(err)
	}
	p.cutAll(false)
	<-st.Done()
	wantCode(t, st.Err(), stream.Unloaded)
	if s.Err() != nil {
		t.Error(s.Err())
	}
}

// A session gives up when no server answers.
func TestSessionGivesUp(t *testing.T) {
	c, _ := serve(t, "slow=delay,fixed=500ms")
	p, via := cut(t, c, never)
	for _, patient := range []time.Duration{-1, 150 * time.Millisecond} {
		p.cutAll(false)
		s := session(t, via, client.SessionOptions{GiveUp: patient})
		st := openStream(t, s, "slow", client.StreamOptions{Codec: "opaque", Policy: every})
		for range 3 {
			if _, err := st.Send(testTimeout(t), client.Frame{Data: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		p.cutAll(true)
		for i := range uint64(3) {
			if r := <-st.Replies(); r.Seq != i || !r.Lost {
				t.Errorf("%+v", r)
			}
		}
		<-s.Done()
		wantCode(t, s.Err(), stream.Unavailable)
		wantCode(t, st.Err(), stream.Unavailable)
		_, err := st.Send(testTimeout(t), client.Frame{Data: []byte("x")})
		wantCode(t, err, stream.Unavailable)
	}
	p.cutAll(true)
	_, err := via.Session(context.Background(), client.SessionOptions{})
	wantCode(t, err, stream.Unavailable)
}
