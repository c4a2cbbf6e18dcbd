package ws_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/batching"
	"millrace/ingest/ws"
	"millrace/stream"
	"millrace/workers"
)

func init() {
	workers.Register(workers.Kind{Name: "held", New: func() workers.Worker { return &held{} }})
}

// held reports the start of a batch, and answers when the test releases the batch.
type held struct{ workers.Base }

// runs belongs to the test with the only worker of kind held.
var runs struct{ started, release chan struct{} }

func (*held) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 1}, nil
}

func (*held) Run(_ context.Context, b *batching.Batch) error {
	runs.started <- struct{}{}
	<-runs.release
	for _, r := range b.Requests {
		lease := r.TakeLease()
		r.FinishSingle(stream.Tensor{Name: "n", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{1}}, nil, false)
		lease.Release()
	}
	return nil
}

// A client learns of the shutdown while its streams are open: frames in flight are answered, new streams are refused,
// and then the connection ends.
func TestV1GoAwayComesFirst(t *testing.T) {
	runs.started, runs.release = make(chan struct{}), make(chan struct{})
	r := start(t, ws.Options{}, workers.Config{Name: "held", Kind: "held"})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"held"`+every)
	for seq := range uint64(4) {
		v.frame(1, seq)
	}
	v.say(`{"type":"ping","t":1}`)
	v.expect("pong") // all have come
	<-runs.started   // and the first is in flight
	r.ws.GoAway(time.Now().Add(time.Hour))
	r.ws.GoAway(time.Now()) // the first counts
	if e := v.expect("goaway"); e.TimeLeftMS < 3_000_000 || e.TimeLeftMS > 3_600_000 {
		t.Fatalf("%+v", e)
	}

	late, resp, err := websocket.DefaultDialer.Dial("ws://"+r.addr+"/v2/models/echo/stream", nil)
	if err == nil {
		late.Close()
		t.Error("a connection was let in")
	} else if resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%v %v", err, resp)
	}

	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		closed <- r.models.Close(ctx)
	}()
	r.until("the frames that wait have ended", func() bool { return r.stream(0).Counts().Errors == 3 })
	close(runs.release)
	if e := v.expect("result"); e.Seq != 0 {
		t.Errorf("%+v", e)
	}
	for seq := uint64(1); seq < 4; seq++ {
		if e := v.expectError("draining", ""); e.Seq != seq || e.Fatal {
			t.Errorf("%+v", e)
		}
	}
	if e := v.expect("closed"); e.Reason != "draining" {
		t.Errorf("%+v", e)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	v.say(`{"type":"open","sid":2,"model":"held"}`)
	if e := v.next(); e.Type != "error" || e.Fatal || e.SID != 2 {
		t.Errorf("%+v", e)
	}
	go r.stop()
	if e := v.expectError("draining", "shutting down"); !e.Fatal {
		t.Errorf("%+v", e)
	}
	v.ends(websocket.CloseGoingAway)
	r.stop()
}

// Without an earlier GoAway, clients are told when the adapter ends.
func TestV1GoAwayAtTheEnd(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"slow"`)
	go r.stop()
	if e := v.expect("goaway"); e.TimeLeftMS != 0 {
		t.Errorf("%+v", e)
	}
	if e := v.expect("closed"); e.Reason != "draining" {
		t.Errorf("%+v", e)
	}
	if e := v.expectError("draining", "shutting down"); !e.Fatal {
		t.Errorf("%+v", e)
	}
	v.ends(websocket.CloseGoingAway)
	r.stop()
}
