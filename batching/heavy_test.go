package batching

import (
	"testing"
	"time"

	"millrace/stream"
)

// picturesModel is a model of pictures of one pixel; decoding a picture takes its CaptureUS.
func picturesModel(maxBatch int) *stream.Model {
	m := bytesModel(maxBatch, 1, 1, 3)
	m.Image = &stream.ImageSpec{Width: 1, Height: 1, Color: "RGB", Layout: "NHWC"}
	m.Cost = func(r *stream.Request) time.Duration { return time.Duration(r.CaptureUS) * time.Microsecond }
	return m
}

func newPictures(t testing.TB, kind string, maxBatch int) *group {
	g := newGroup(t, picturesModel(maxBatch), kind, 4, 256)
	g.intake.SeparateHeavy()
	return g
}

// show submits a picture with the decoding time takes.
func show(t testing.TB, s *stream.Stream, of *stream.Account, takes time.Duration, now stream.Instant) {
	t.Helper()
	f := stream.Frame{Codec: stream.RGB24, Width: 1, Height: 1, Payload: []byte{1, 2, 3},
		CaptureUS: takes.Microseconds(), Account: of}
	if err := s.SubmitAt(f, now); err != nil {
		t.Fatal(err)
	}
}

func pixels(r *stream.Request, dst []byte) error { copy(dst, r.Payload); return nil }

// decodeHeavy does the part of a goroutine beside the workers, and returns the account and the decoding time.
func (g *group) decodeHeavy(t testing.TB, now stream.Instant) (of *stream.Account, took time.Duration) {
	t.Helper()
	h, ok := g.intake.TakeHeavy(now)
	if !ok {
		return nil, 0
	}
	row, err := g.mem.Lease(3)
	if err != nil {
		t.Fatal(err)
	}
	of, took = h.Account, h.Cost
	DecodePictures(h.Request, row, pixels)
	g.intake.AddDecoded(h, took)
	return of, took
}

// runAll runs all batches that can be gathered, and returns the number of frames run by account.
func (g *group) runAll(t testing.TB, now stream.Instant) map[*stream.Account]int {
	t.Helper()
	n := map[*stream.Account]int{}
	for {
		b, _, err := g.intake.Gather(now, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			return n
		}
		var cost time.Duration
		for _, r := range b.Requests {
			n[r.Account]++
			if r.Row == nil {
				cost = max(cost, r.Cost)
			}
		}
		if cost >= heavyCost {
			t.Errorf("a worker would decode for %v", cost)
		}
		if b.Prepare(pixels) {
			for i := range b.Requests {
				if got := b.Row(0, b.Offsets[i]); got[0] != 1 || got[2] != 3 {
					t.Errorf("row %d is %v", i, got)
				}
			}
			b.Outputs = b.Inputs
			b.Split()
		}
		g.pool.Put(b)
	}
}

// patience returns a time longer than a batcher waits after a single frame, and whether the frame then runs alone.
func patience(t testing.TB, kind string, maxBatch int) (longer time.Duration, alone bool) {
	t.Helper()
	b, err := NewBatcher(kind, maxBatch, testParts)
	if err != nil {
		t.Fatal(err)
	}
	v := View{Rows: 1, Idle: 1, Pending: 1, Deadline: NoDeadline, Predict: linear}
	_, wait := b.Decide(v)
	longer = max(20*time.Millisecond, wait+time.Millisecond)
	v.Oldest = longer
	took, _ := b.Decide(v)
	return longer, took > 0
}

// Decoding time for heavy pictures is divided equally among the accounts, whatever the number of streams and the size
// of the pictures, and meanwhile every other frame runs at once.
func TestDecodingIsFairBetweenAccounts(t *testing.T) {
	for _, k := range Kinds() {
		step, alone := patience(t, k.Name, 4)
		if !alone {
			continue // here a single frame waits for further frames
		}
		g := newPictures(t, k.Name, 4)
		type client struct {
			account *stream.Account
			streams []*stream.Stream
			takes   time.Duration
			used    time.Duration
		}
		open := func(n int, takes time.Duration) *client {
			c := &client{account: &stream.Account{}, takes: takes}
			for range n {
				s, _ := g.open(t, stream.Policy{Mode: stream.Every, Window: 2})
				c.streams = append(c.streams, s)
			}
			return c
		}
		clients := []*client{open(20, time.Second), open(1, 100*time.Millisecond), open(4, 300*time.Millisecond)}
		neighbour := open(1, 3*time.Millisecond)
		now, sent := epoch, 0
		refill := func() {
			for _, c := range clients {
				for _, s := range c.streams {
					for n := s.Counts(); n.Accepted < n.Results+2; n = s.Counts() {
						show(t, s, c.account, c.takes, now)
					}
				}
			}
		}
		for range 400 {
			refill()
			for range 5 {
				show(t, neighbour.streams[0], neighbour.account, neighbour.takes, now)
				sent++
				now = now.Add(step)
				if n := g.runAll(t, now)[neighbour.account]; n != 1 {
					t.Fatalf("%s: %d frames of the neighbour ran, want the one that was sent", k.Name, n)
				}
			}
			of, took := g.decodeHeavy(t, now)
			if took == 0 {
				t.Fatalf("%s: no heavy frame", k.Name)
			}
			for _, c := range clients {
				if c.account == of {
					c.used += took
				}
			}
			now = now.Add(took)
			g.runAll(t, now)
		}
		for _, c := range clients[1:] {
			if d := (clients[0].used - c.used).Abs(); d > time.Second+c.takes {
				t.Errorf("%s: accounts with %d and %d streams used %v and %v", k.Name, len(clients[0].streams),
					len(c.streams), clients[0].used, c.used)
			}
		}
		if got := neighbour.streams[0].Counts().Results; got != uint64(sent) {
			t.Errorf("%s: %d results of %d", k.Name, got, sent)
		}
	}
}

// While another account sends frames, a batch decodes no more than an account's share; the rest is decoded beside the
// workers. A single active account may use the whole batch.
func TestShareOfABatch(t *testing.T) {
	const takes = 10 * time.Millisecond
	a, b := &stream.Account{}, &stream.Account{}
	g := newPictures(t, Adaptive, 16)
	var of []*stream.Stream
	for range 9 {
		s, _ := g.open(t, window)
		of = append(of, s)
	}
	now := epoch
	send := func() {
		for _, s := range of[:8] {
			show(t, s, a, takes, now)
		}
	}
	send()
	if n := g.runAll(t, now); n[a] != 8 {
		t.Errorf("%d frames ran, want all: no other account sends", n[a])
	}
	show(t, of[8], b, time.Millisecond, now)
	g.runAll(t, now)
	send()
	show(t, of[8], b, time.Millisecond, now)
	if n := g.runAll(t, now); n[a] != int(shareCost/takes) || n[b] != 1 {
		t.Errorf("%d and %d frames ran, want %d of the account that sends more, and one", n[a], n[b], shareCost/takes)
	}
	for range 8 - int(shareCost/takes) {
		if of, _ := g.decodeHeavy(t, now); of != a {
			t.Error("a frame is not decoded beside")
		}
	}
	if n := g.runAll(t, now); n[a] != 8-int(shareCost/takes) {
		t.Errorf("%d frames ran after their decoding", n[a])
	}
	for _, s := range of[:8] { // of the server's own streams
		show(t, s, nil, takes, now)
	}
	if n := g.runAll(t, now); n[nil] != 8 {
		t.Errorf("%d frames of the server ran, want all", n[nil])
	}
	now = now.Add(recently)
	send()
	if n := g.runAll(t, now); n[a] != 8 {
		t.Errorf("%d frames ran, want all: the other account is silent", n[a])
	}
}

// A frame waiting to be decoded stays in its mailbox like any frame: a newer frame replaces the frame, a passed
// deadline ends the frame, and so does the end of the stream, which also frees the place.
func TestHeavyFramesWaitInTheirMailboxes(t *testing.T) {
	const takes = time.Second
	g := newPictures(t, Adaptive, 4)
	live, k := g.open(t, stream.Policy{Mode: stream.Latest})
	late, kl := g.open(t, stream.Policy{Mode: stream.Every, Deadline: time.Second})
	left, _ := g.open(t, window)
	now := epoch
	for i := range 3 {
		show(t, live, nil, takes, now)
		g.runAll(t, now)
		if want := i; len(k.results) != want {
			t.Fatalf("%d endings, want those of the superseded ones, %d", len(k.results), want)
		}
	}
	show(t, late, nil, takes, now)
	show(t, left, nil, takes, now)
	g.runAll(t, now)
	if g.intake.HeavyWaiting() != 3 || g.pool.Free() != g.pool.Size() {
		t.Fatalf("%d wait, %d of %d batches are free", g.intake.HeavyWaiting(), g.pool.Free(), g.pool.Size())
	}
	left.Close(stream.ClientGone)
	g.intake.Sweep(g)
	if g.intake.HeavyWaiting() != 2 || g.detached != 1 {
		t.Errorf("%d wait, %d detached after the end of a stream", g.intake.HeavyWaiting(), g.detached)
	}
	if _, took := g.decodeHeavy(t, now); took == 0 {
		t.Error("the newest was not decoded")
	}
	now = now.Add(2 * time.Second)
	if _, took := g.decodeHeavy(t, now); took != 0 || len(kl.stale) != 1 {
		t.Errorf("a frame that is too late is decoded for %v; stale: %v", took, kl.stale)
	}
	g.runAll(t, now)
	if n := live.Counts(); n.Results != 1 || n.Drops != 2 {
		t.Errorf("%+v", n)
	}
	if m := g.mem.Stats(); m.Leases != 0 {
		t.Errorf("%d leases are left", m.Leases)
	}
}

// A decoded request ends like a request in a batch: by the deadline, the client, or the end of the group; the memory of
// the row is released. At most one batch of decoded requests waits for a worker.
func TestDecodedRequestsEnd(t *testing.T) {
	g := newPictures(t, Adaptive, 4)
	now := epoch
	var all []*stream.Stream
	for range 8 {
		s, _ := g.open(t, stream.Policy{Mode: stream.Every, Deadline: time.Minute})
		show(t, s, nil, time.Second, now)
		all = append(all, s)
	}
	g.runAll(t, now)
	decode := func() (n int) {
		for {
			if _, took := g.decodeHeavy(t, now); took == 0 {
				return n
			}
			n++
		}
	}
	if n := decode(); n != 4 {
		t.Fatalf("%d were decoded, want a batch of them", n)
	}
	if g.mem.Stats().Leases != 4 {
		t.Fatalf("%d leases, want a row each", g.mem.Stats().Leases)
	}
	all[0].Abandon(stream.Errorf(stream.Canceled, "", "the client has left"))
	if n := g.runAll(t, now); n[nil] != 3 || g.mem.Stats().Leases != 0 {
		t.Errorf("%d ran, want all but the one whose client has left; %d leases", n[nil], g.mem.Stats().Leases)
	}
	decode()
	now = now.Add(2 * time.Minute)
	if n := g.runAll(t, now); n[nil] != 0 || g.mem.Stats().Leases != 0 {
		t.Errorf("%d ran after their deadline; %d leases", n[nil], g.mem.Stats().Leases)
	}
	for _, s := range all[4:] {
		if s.Counts().Drops != 1 {
			t.Errorf("%+v", s.Counts())
		}
		show(t, s, nil, time.Second, now)
	}
	g.runAll(t, now)
	decode()
	for _, b := range g.intake.Drain() {
		t.Errorf("a batch of %d rows", b.Rows)
	}
	if !g.intake.HasReady() {
		t.Error("nothing is left to run after the intake was drained")
	}
	if n := g.runAll(t, now)[nil]; n != 4 || g.intake.HasReady() {
		t.Errorf("%d ran after the intake was drained", n)
	}
	for _, s := range all[4:] {
		show(t, s, nil, time.Second, now)
	}
	g.runAll(t, now)
	decode()
	g.intake.Drain()
	for _, r := range g.intake.RemoveDecoded() {
		r.Fail(stream.Errorf(stream.Unavailable, "", "no worker is left"))
		r.Unbind()
	}
	for _, s := range all[4:] {
		if s.Counts().Errors != 1 {
			t.Errorf("%+v", s.Counts())
		}
	}
	if g.mem.Stats().Leases != 0 || g.intake.HasReady() {
		t.Errorf("%d leases", g.mem.Stats().Leases)
	}
}
