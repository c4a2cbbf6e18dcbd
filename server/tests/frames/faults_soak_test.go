package frames_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/config"
	"millrace/ingest"
	"millrace/ingest/streams"
	"millrace/internal/child"
	"millrace/internal/servertest"
	"millrace/internal/testseed"
	"millrace/internal/wire"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

var soakFor = flag.Duration("soak", 30*time.Second, "how long TestSoak takes")

// TestSoak runs clients of all kinds that connect and disconnect, in order and out of order, while workers panic and
// break, models are loaded and unloaded, and server streams watch failing cameras. Permanent clients get every frame
// answered; at the end nothing new is left. `make soak` runs half an hour.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("takes -soak")
	}
	letGo = make(chan struct{})
	dir := t.TempDir()
	hideLog(t)
	watched := newSoakStreams(t)
	before, goroutines, heap := files(t), runtime.NumGoroutine(), heapInUse()
	s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Log:     config.Log{Level: "error", File: dir + "/log"},
		Sources: config.Sources{AllowPrivate: true}, Streams: []streams.Config{watched.config(dir + "/door.jsonl")},
		Limits: ingest.Limits{Resume: time.Second},
		Models: []workers.Config{
			{Name: "m", Source: "trouble", Instances: 3, Limits: workers.Limits{Restarts: 1000000}},
			{Name: "told", Source: "trouble", Instances: 2, Limits: workers.Limits{Restarts: 1000000}},
			{Name: "extra", Source: "identity"},
			{Name: "find", Source: "motion"},
		}})
	var wg sync.WaitGroup
	var asked, answered atomic.Int64
	soak := &soaking{t: t, s: s, asked: &asked, answered: &answered,
		told: &scene{T: t, s: s, model: "told", told: map[string]int{}}}
	watched.soaking = soak
	if r, ok := watched.until("door", soakPatience, func(r *soakReport) bool { return r.Results > 0 }); !ok {
		t.Errorf("streams: the one that stays does not begin: %+v", r)
	}
	over := time.Now().Add(*soakFor)
	client := func(seed uint64, f func(*soaking, *rand.Rand)) {
		wg.Go(func() {
			for rng := rand.New(rand.NewPCG(seed, testseed.First())); time.Now().Before(over) && !t.Failed(); {
				f(soak, rng)
			}
		})
	}
	for seed := range uint64(3) {
		client(seed, (*soaking).plain)
		client(10+seed, (*soaking).sessions)
		client(20+seed, (*soaking).rest)
	}
	client(30, (*soaking).changes)
	for seed, f := range []func(*soakStreams, *rand.Rand){
		(*soakStreams).troubles, (*soakStreams).churn, (*soakStreams).churn, (*soakStreams).whole,
		(*soakStreams).viewers, (*soakStreams).viewers,
	} {
		client(40+uint64(seed), func(_ *soaking, rng *rand.Rand) { f(watched, rng) })
	}
	wg.Wait()
	watched.settle()
	t.Logf("%d frames, %d endings", asked.Load(), answered.Load())
	if asked.Load() != answered.Load() || asked.Load() < 100 {
		t.Errorf("%d frames of clients that stayed, %d endings", asked.Load(), answered.Load())
	}
	if told, counted := listing(soak.told.told),
		listing(tellable(soak.told.counted(), false, false)); told != counted || told == "" {
		t.Errorf("told:    %s\ncounted: %s", told, counted)
	}
	soak.told.until("no frame is in flight", func() bool {
		return countsOf(t, s, "m")["in_flight"] == 0 && countsOf(t, s, "extra")["in_flight"] == 0
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := s.Memory().Stats().Leases; n != 0 {
		t.Errorf("%d leases left", n)
	}
	if n := child.LiveChildren(); n != 0 {
		t.Errorf("%d children left", n)
	}
	watched.lines(dir + "/door.jsonl")
	watched.close()
	for limit := time.Now().Add(soakPatience); files(t) > before+3 || runtime.NumGoroutine() > goroutines+
		10; runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatalf("%d descriptors, %d before; %d goroutines, %d before", files(t), before, runtime.NumGoroutine(),
				goroutines)
		}
	}
	if now := heapInUse(); now > heap+64<<20 {
		t.Errorf("%d bytes of heap in use, %d before", now, heap)
	}
}

// hideLog keeps the stacks of the workers that panic on purpose out of the test's output, in which an error of the test
// would hardly be found. The file of the log has the stacks.
func hideLog(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	shown := os.Stderr
	os.Stderr = null // read by server.New
	t.Cleanup(func() { os.Stderr = shown; null.Close() })
}

// heapInUse is the size of the heap after a complete collection.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // the first only empties sync.Pool half
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

type soaking struct {
	t               *testing.T
	s               *server.Server
	asked, answered *atomic.Int64
	told            *scene // of a model without disconnecting clients
}

// frame is mostly harmless.
func frame(rng *rand.Rand) []byte {
	switch n := rng.IntN(200); {
	case n == 0:
		return []byte("die")
	case n < 5:
		return []byte("panic")
	}
	return bytes.Repeat([]byte{'x'}, 1+rng.IntN(5000))
}

// plain opens a stream in plain mode. One client in four disconnects without a close.
func (k *soaking) plain(rng *rand.Rand) {
	policy, model := [...]string{"latest", "every"}[rng.IntN(2)], "told"
	leaves := rng.IntN(4) == 0
	if leaves {
		model = "m"
	}
	c, _, err := websocket.DefaultDialer.Dial("ws://"+k.s.Addr("http")+"/v2/models/"+model+
		"/stream?codec=opaque&outputs=none&policy="+policy, nil)
	if err != nil {
		k.t.Errorf("plain: %v", err)
		return
	}
	defer c.Close()
	frames := make([][]byte, 1+rng.IntN(30))
	n := len(frames)
	for i := range frames {
		frames[i] = frame(rng)
	}
	go func() { // ends with the connection
		for _, f := range frames {
			if c.WriteMessage(websocket.BinaryMessage, f) != nil {
				return
			}
		}
	}()
	for i := range n {
		if leaves && i > n/2 {
			return
		}
		_ = c.SetReadDeadline(time.Now().Add(soakPatience))
		_, b, err := c.ReadMessage()
		if err != nil {
			k.t.Errorf("plain: ending %d of %d: %v", i, n, err)
			return
		}
		if !leaves {
			k.told.tally(b)
		}
	}
	if !leaves {
		k.asked.Add(int64(n))
		k.answered.Add(int64(n))
	}
}

// sessions speaks millrace.v1, loses its connection and resumes.
func (k *soaking) sessions(rng *rand.Rand) {
	d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}}
	dial := func() *websocket.Conn {
		c, _, err := d.Dial("ws://"+k.s.Addr("http")+"/v2/models/m/stream", nil)
		if err != nil {
			k.t.Errorf("session: %v", err)
			return nil
		}
		_ = c.SetReadDeadline(time.Now().Add(soakPatience))
		return c
	}
	c := dial()
	if c == nil {
		return
	}
	defer func() { c.Close() }()
	var token string
	seq, ack, want := uint64(0), uint64(0), uint64(5+rng.IntN(30))
	cut := want + 1 // nobody's business
	if rng.IntN(2) == 0 {
		cut = 1 + rng.Uint64N(want)
	}
	_ = c.WriteMessage(websocket.TextMessage,
		[]byte(`{"type":"open","sid":1,"outputs":"none","policy":{"mode":"every","window":4}}`))
	for ack < want {
		kind, b, err := c.ReadMessage()
		if err != nil {
			k.t.Errorf("session: %d of %d: %v", ack, want, err)
			return
		}
		var m struct {
			Type  string
			Code  string
			Seq   *uint64
			Ack   uint64
			Limit uint64 `json:"credit_limit"`
			Token string `json:"resume_token"`

			Streams []struct {
				Received uint64 `json:"received_count"`
				Limit    uint64 `json:"credit_limit"`
			}
		}
		if kind != websocket.TextMessage || json.Unmarshal(b, &m) != nil {
			k.t.Errorf("session: %s", b)
			return
		}
		switch m.Type {
		case "ready", "attached":
			token = m.Token
			for _, st := range m.Streams {
				seq, m.Limit = st.Received, st.Limit // send the lost frames again
			}
		case "error":
			if m.Seq == nil && m.Code == "not_found" {
				return // resumed too late
			}
		case "closed":
			k.t.Errorf("session: %s", b)
			return
		}
		ack = max(ack, m.Ack)
		if ack >= cut {
			cut = want + 1
			_ = c.NetConn().Close()
			if rng.IntN(4) == 0 {
				return // and is not seen again
			}
			if c = dial(); c == nil {
				return
			}
			if _, _, err := c.ReadMessage(); err != nil { // the unused session's ready message
				k.t.Errorf("session: %v", err)
				return
			}
			_ = c.WriteMessage(websocket.TextMessage,
				[]byte(`{"type":"attach","token":"`+token+`","streams":[{"sid":1,"last_seq":0}]}`))
			continue
		}
		for ; m.Limit > 0 && seq < min(m.Limit, want); seq++ {
			h := wire.Header{Kind: wire.KindFrame, SID: 1, Seq: seq}
			if c.WriteMessage(websocket.BinaryMessage, append(wire.AppendHeader(nil, &h), frame(rng)...)) != nil {
				break
			}
		}
	}
	k.asked.Add(int64(want))
	k.answered.Add(int64(ack))
}

func (k *soaking) rest(rng *rand.Rand) {
	b := frame(rng)
	r, err := http.Post("http://"+k.s.Addr("http")+"/v2/models/m/infer", "application/octet-stream", bytes.NewReader(b))
	k.asked.Add(1)
	if err != nil {
		k.t.Errorf("rest: %v", err)
		return
	}
	_ = r.Body.Close()
	if bad := string(b) == "die" || string(b) == "panic"; (r.StatusCode == http.StatusOK) == bad {
		k.t.Errorf("rest: %d for %.10q", r.StatusCode, b)
	}
	k.answered.Add(1)
}

// changes loads and unloads a model in use.
func (k *soaking) changes(rng *rand.Rand) {
	ctx := k.t.Context()
	size := binary.LittleEndian.AppendUint32(nil, rng.Uint32())
	r, err := k.s.Native().InferBytes(ctx, "extra", stream.Opaque, size)
	switch {
	case err == nil:
		r.Release()
	case stream.CodeOf(err) != stream.NotFound && stream.CodeOf(err) != stream.Unloaded:
		k.t.Errorf("extra: %v", err)
	}
	if rng.IntN(2) == 0 {
		_, _ = k.s.Models().Load(ctx, "extra", workers.Load{})
	} else {
		_ = k.s.Models().Unload(ctx, "extra", "") // may not be loaded
	}
}
