package v1

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/internal/wire"
	"millrace/stream"
)

// attach resumes a session and returns the answer; streams is the JSON of the attach message's streams.
func (r *rig) attach(token, streams string) (*client, *wire.Attached) {
	r.t.Helper()
	v, _ := r.hello()
	v.say(`{"type":"attach","token":"` + token + `","streams":[` + streams + `]}`)
	synctest.Wait()
	v.mu.Lock()
	texts := v.texts
	v.texts = texts[1:]
	v.mu.Unlock()
	m, err := wire.ParseControl([]byte(texts[0]), wire.Server)
	if err != nil {
		r.t.Fatal(err)
	}
	a, ok := m.(*wire.Attached)
	if !ok {
		r.t.Fatal(texts[0])
	}
	slices.SortFunc(a.Streams, func(x, y wire.AttachedStream) int { return cmp.Compare(x.SID, y.SID) })
	return v, a
}

// A session outlives its connection. The resuming client learns the last frame received on each stream, and gets the
// missed endings: endings since the loss, and endings after the last ending known to the client.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.AdviseEvery = time.Hour })
		v, token := r.hello()
		v.say(`{"type":"open","sid":1,"outputs":"none","policy":{"mode":"every","window":4}}`)
		v.say(`{"type":"open","sid":2}`)
		v.frames(1, 1, 2, 3)
		r.answer(0, 0, 0)
		r.answer(0, 0, 0)
		v.all()
		v.lose()
		if st := r.Stats(); st.Sessions != 1 || st.Waiting != 1 || st.ReplayBytes == 0 {
			t.Errorf("%+v", st)
		}
		r.answer(0, 0, 0)
		time.Sleep(r.opts.Resume - 1)
		v, a := r.attach(token, `{"sid":1,"last_seq":1}`)
		if st := r.Stats(); st.Sessions != 1 || st.Waiting != 0 {
			t.Errorf("%+v", st)
		}
		seq := uint64(3)
		want := []wire.AttachedStream{{SID: 1, ReceivedCount: 3, ReceivedSeq: &seq, CreditLimit: 6},
			{SID: 2, CreditLimit: 4}}
		if describe([]wire.Message{&wire.Attached{Streams: a.Streams}}) != describe(
			[]wire.Message{&wire.Attached{Streams: want}}) || a.ResumeMS != 30_000 {
			t.Errorf("%+v", a)
		}
		v.expect("result 1/2 ack 2 of 6", "result 1/3 ack 3 of 7")
		time.Sleep(time.Minute) // the waiting time is over
		v.frames(1, 4)
		r.answer(0, 0, 0)
		v.expect("result 1/4 ack 4 of 8")
		v.lose()
		v, _ = r.attach(a.ResumeToken, `{"sid":1}`) // it knows of none
		v.expect("result 1/1 ack 1 of 5", "result 1/2 ack 2 of 6", "result 1/3 ack 3 of 7", "result 1/4 ack 4 of 8")
		v.lose()
		time.Sleep(r.opts.Resume)
		synctest.Wait()
		if st := r.Stats(); st != (Stats{}) {
			t.Errorf("after its time: %+v", st)
		}
		r.stop()
	})
}

// A token is valid once; the token before remains valid until the client has shown knowledge of the new token.
func TestResumeTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		v, first := r.hello()
		refused := func(token string) {
			t.Helper()
			x := r.connect()
			x.all()
			x.say(`{"type":"attach","token":"` + token + `"}`)
			x.expect("error not_found attach.token")
			x.lose()
		}
		v.say(`{"type":"attach","token":"` + first + `"}`) // its own
		v.expect("error not_found attach.token")
		v.say(`{"type":"attach","token":"x"}`)
		v.expect("error conflict attach")
		v.lose()
		v, a := r.attach(first, "")
		if r.Stats().Sessions != 1 {
			t.Errorf("%+v", r.Stats())
		}
		v.lose() // the answer may be lost
		v, b := r.attach(first, "")
		refused(a.ResumeToken)
		v.say(`{"type":"ping","t":1}`)
		find[*wire.Pong](v)
		refused(first)
		// Another connection takes over the session while the old connection is open.
		w, c := r.attach(b.ResumeToken, "")
		v.expect("error conflict another connection has resumed this session")
		if v.ended() != int(wire.CloseTakenOver) || c.Session != b.Session {
			t.Errorf("%d, %+v", v.ended(), c)
		}
		w.say(`{"type":"ping","t":1}`)
		find[*wire.Pong](w)
		w.lose()
		r.stop()
	})
}

// Waiting sessions make room for connections that open streams: the longest waiting session ends first, and no more
// sessions than necessary.
func TestMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil) // room for three
		var tokens []string
		for range 2 {
			v, token := r.hello()
			v.lose()
			tokens = append(tokens, token)
		}
		v, _ := r.hello()
		v.say(`{"type":"open","sid":1}`)
		synctest.Wait() // the room at present, without the next connection
		w, _ := r.hello()
		if st := r.Stats(); st.Waiting != 2 || st.Sessions != 4 {
			t.Errorf("%+v", st)
		}
		w.say(`{"type":"open","sid":1}`)
		synctest.Wait()
		if st := r.Stats(); st.Waiting != 1 || st.Sessions != 3 {
			t.Errorf("%+v", st)
		}
		w.lose()
		r.attach(tokens[1], "")
		r.stop()
	})
}

// A client with many waiting sessions ends its own sessions, not the sessions of other clients.
func TestWaitingSessionsOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil) // room for three
		client := r.clients(access.Quotas{})
		good, bad := client("192.0.2.1"), client("192.0.2.2")
		v := r.connectAs(good)
		token := find[*wire.Ready](v).ResumeToken
		v.lose()
		for i := range 10 {
			v := r.connectAs(bad)
			find[*wire.Ready](v)
			if i%2 > 0 {
				v.say(`{"type":"open","sid":1}`)
			}
			v.lose()
			synctest.Wait()
			if st := r.Stats(); st.Waiting > 3 {
				t.Fatalf("%d sessions wait", st.Waiting)
			}
		}
		w, a := r.attach(token, "")
		if a == nil {
			t.Fatal("the session of another client has ended")
		}
		w.lose()
		r.stop()
		for q := range stream.Quotas {
			q := stream.Quota(q)
			if n := good.Account().Used(q) + bad.Account().Used(q); q >= stream.QuotaStreams && n != 0 {
				t.Errorf("%d %s are left", n, q)
			}
		}
	})
}

// Waiting sessions count towards the quota of their client when the client opens a stream: the oldest session ends.
func TestQuotaOfSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		two := 2
		client := r.clients(access.Quotas{Sessions: &two})("192.0.2.1")
		for range 2 {
			v := r.connectAs(client)
			find[*wire.Ready](v)
			v.lose()
		}
		v := r.connectAs(client)
		find[*wire.Ready](v)
		if st := r.Stats(); st.Waiting != 2 {
			t.Errorf("%+v", st)
		}
		v.say(`{"type":"open","sid":1}`)
		synctest.Wait()
		if st := r.Stats(); st.Waiting != 1 || client.Account().Used(stream.QuotaSessions) != 1 {
			t.Errorf("%+v, %d connections", st, client.Account().Used(stream.QuotaSessions))
		}
		v.lose()
		r.stop()
	})
}

// The ends of streams are repeated to a client that considers the streams open: for a bounded number of streams, and
// for some also the endings of frames. A reused sid means the new stream alone.
func TestEndsAreToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		v, token := r.hello()
		named := ""
		const all = maxStreams + 1
		for i := range all {
			v.say(fmt.Sprintf(`{"type":"open","sid":%d,"outputs":"none"}`, i))
			v.frames(uint32(i), 7)
			r.answer(i, 0, 0)
			v.say(fmt.Sprintf(`{"type":"close","sid":%d}`, i))
			named += fmt.Sprintf(`{"sid":%d},`, i)
		}
		if got := v.all(); len(got) != 3*all {
			t.Fatalf("%d messages", len(got))
		}
		v.lose()
		v, a := r.attach(token, strings.TrimSuffix(named, ","))
		if n := len(a.Streams); n != maxStreams || a.Streams[0].SID != 1 {
			t.Errorf("%d streams are told of", n)
		}
		results, closed := 0, 0
		for _, m := range v.all() {
			switch m := m.(type) {
			case *wire.Result:
				results++
				if m.SID < all-maxEndedReplay || m.Seq != 7 {
					t.Errorf("%+v", m)
				}
			case *wire.Closed:
				closed++
			}
		}
		if results != maxEndedReplay || closed != maxStreams {
			t.Errorf("%d results and %d ends are told again", results, closed)
		}
		v.say(`{"type":"open","sid":1}`) // the oldest
		v.say(`{"type":"open","sid":256}`)
		v.all()
		v.lose()
		v, a = r.attach(a.ResumeToken, `{"sid":1},{"sid":2},{"sid":256}`)
		if len(a.Streams) != 3 || a.Streams[0].ReceivedCount != 0 || a.Streams[1].ReceivedCount != 1 ||
			a.Streams[2].ReceivedCount != 0 {
			t.Errorf("%+v", a.Streams)
		}
		v.expect("closed 2 client {1 1 1 0 0}")
		v.lose()
		r.stop()
	})
}

// A session has a bounded number of streams, and a sid belongs to one stream at a time.
func TestStreamsOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		v, _ := r.hello()
		for i := range maxStreams {
			v.say(fmt.Sprintf(`{"type":"open","sid":%d}`, i))
		}
		if n := len(v.all()); n != maxStreams {
			t.Fatalf("%d messages", n)
		}
		v.say(`{"type":"open","sid":1000}`)
		v.expect("error overloaded open.sid 1000")
		v.say(`{"type":"close","sid":3}`)
		v.expect("closed 3 client {0 0 0 0 0}")
		v.say(`{"type":"pause","sid":3}`)
		v.expect("error not_found sid 3")
		v.say(`{"type":"open","sid":4}`)
		v.expect("error conflict open.sid 4")
		r.refuse = stream.Errorf(stream.NotFound, "model", "x")
		v.say(`{"type":"open","sid":3}`)
		v.expect("error not_found open.model 3")
		r.refuse = nil
		v.say(`{"type":"open","sid":3}`)
		find[*wire.Opened](v)
		r.stop()
	})
}

// An orderly end of a connection waits for the frames in flight, and an ended session does not end twice.
func TestSessionDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		v, token := r.hello()
		v.say(`{"type":"open","sid":1,"outputs":"none"}`)
		v.frames(1, 1, 2)
		req := r.take(0)
		v.all()
		s := r.byToken[digestOf(token)]
		r.registry.Close()
		go r.registry.Drain()
		v.expect()
		finish(req)
		v.expect("result 1/2 ack 2 of 6", "closed 1 draining {2 2 1 1 0}", "error draining the server is shutting down")
		if v.ended() != int(wire.CloseGoingAway) {
			t.Errorf("%d", v.ended())
		}
		if s.markOver(false) || s.markOver(true) {
			t.Error("it ends twice")
		}
		r.stop()
	})
}

// A waiting session ends when its outbox is full.
func TestSlowWithoutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.OutboxMessages = 4 })
		v, _ := r.hello()
		v.say(`{"type":"open","sid":1,"outputs":"none","policy":{"mode":"every","window":8}}`)
		find[*wire.Opened](v)
		v.frames(1, 1, 2, 3, 4, 5)
		v.lose()
		for range 4 {
			r.answer(0, 0, 0)
		}
		if st := r.Stats(); st.Waiting != 1 {
			t.Errorf("%+v", st)
		}
		r.answer(0, 0, 0)
		synctest.Wait()
		if st := r.Stats(); st != (Stats{}) {
			t.Errorf("%+v", st)
		}
		r.stop()
	})
}

// Each client is told once of the server's coming end, whether the client connects before or after the announcement,
// but only after the greeting with the session.
func TestGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		v := r.connect()
		find[*wire.Ready](v)
		until := time.Now().Add(5 * time.Second)
		r.GoAway(until)
		r.GoAway(until)
		v.expect(`goaway {"time_left_ms":5000}`)
		time.Sleep(6 * time.Second)
		w := r.connect()
		if all := w.all(); len(all) != 2 || describe(all[1:]) != `goaway {"time_left_ms":0}` {
			t.Errorf("%s", describe(all))
		}
		near, far := net.Pipe()
		s := newSession(&link{r.registry.New(far, r.mem, Form), nil}, r.registry, ingest.NewGate(r, nil).Owner(),
			&r.opts, &r.replay)
		before := r.registry.Stats().OutboxBytes
		s.goAway(until)
		if r.registry.Stats().OutboxBytes != before {
			t.Error("told before its session")
		}
		_ = near.Close()
		if s.markOver(true) || !s.markOver(false) {
			t.Error("a session with a connection is ended as one that waits, or not ended")
		}
		r.stop()
	})
}
