package frames_test

import (
	"bytes"
	"context"
	"encoding/json"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// Pictures with the longest decoding time within the limits do not delay other clients' frames, with one worker:
// while clients send such pictures over each protocol, a neighbour over WebSocket and a neighbour over REST are
// answered first. Each picture is answered in the end, and streams get their results in order.
func TestHeavyPicturesDoNotHoldUpOthers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // decode one picture at a time
	var large, small bytes.Buffer
	if err := png.Encode(&large, image.NewGray(image.Rect(0, 0, 3000, 3000))); err != nil {
		t.Fatal(err)
	}
	if err := jpeg.Encode(&small, image.NewGray(image.Rect(0, 0, 640, 480)), nil); err != nil {
		t.Fatal(err)
	}
	s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Limits: ingest.Limits{MaxDecodeTime: time.Minute},
		Models: []workers.Config{{Name: "find", Source: "motion", Policy: stream.Policy{Mode: stream.Every},
			Instances: 1}}})
	post := func(b []byte) string {
		r, err := http.Post("http://"+s.Addr("http")+"/v2/models/find/infer", "application/octet-stream",
			bytes.NewReader(b))
		if err != nil {
			t.Error(err)
			return ""
		}
		defer r.Body.Close()
		reply, _ := io.ReadAll(r.Body)
		return string(reply)
	}
	var answered atomic.Int64
	check := func(reply string) {
		if !strings.Contains(reply, "boxes") {
			t.Errorf("a large picture: %.200s", reply)
		}
		answered.Add(1)
	}
	const each = 4 // pictures over each protocol
	var clients sync.WaitGroup
	for range each {
		clients.Go(func() { check(post(large.Bytes())) })
		clients.Go(func() {
			r, err := s.Native().InferBytes(context.Background(), "find", stream.PNG, large.Bytes())
			if err != nil {
				t.Error(err)
				return
			}
			check(r.Outputs[0].Name)
			r.Release()
		})
	}
	attacker := servertest.Dial(t, s, "/v2/models/find/stream?window=64")
	defer attacker.Close()
	for i := range each { // with small pictures in between, which wait for their turn
		for _, b := range [][]byte{large.Bytes(), small.Bytes()} {
			if err := attacker.WriteMessage(websocket.BinaryMessage, b); err != nil {
				t.Fatal(i, err)
			}
		}
	}
	ws := servertest.Dial(t, s, "/v2/models/find/stream")
	defer ws.Close()
	const frames = 2
	for range frames {
		if got := servertest.Ask(t, ws, websocket.BinaryMessage, small.Bytes()); !strings.Contains(got, "boxes") {
			t.Errorf("a neighbour's frame: %.200s", got)
		}
		if got := post(small.Bytes()); !strings.Contains(got, "boxes") {
			t.Errorf("a neighbour's request: %.200s", got)
		}
	}
	// Without turns, a frame would wait for all earlier large pictures and the pictures of their batch.
	if n := answered.Load(); n > each {
		t.Errorf("%d of %d large pictures were answered before %d frames and requests of neighbours", n, 2*each, frames)
	}
	last := -1
	for range 2 * each {
		var reply struct {
			Seq   int             `json:"seq"`
			Error json.RawMessage `json:"error"`
		}
		if err := attacker.ReadJSON(&reply); err != nil || reply.Error != nil {
			t.Fatalf("%d: %s, %v", reply.Seq, reply.Error, err)
		}
		if reply.Seq != last+1 && last >= 0 {
			t.Errorf("the result of %d after that of %d", reply.Seq, last)
		}
		last = reply.Seq
	}
	clients.Wait()
	if n := answered.Load(); n != 2*each {
		t.Errorf("%d of %d large pictures were answered", n, 2*each)
	}
	ws.Close()
	attacker.Close()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if m := s.Memory().Stats(); m.Leases != 0 || m.Leased != 0 {
		t.Errorf("memory is left leased: %+v", m)
	}
}

// Clients share the time of decoding: a client that sends one large picture at a time does not wait for all earlier
// pictures of another client. The clients are addresses that a proxy names.
func TestLargePicturesOfClientsTakeTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // decode one picture at a time
	var large bytes.Buffer
	if err := png.Encode(&large, image.NewGray(image.Rect(0, 0, 3000, 3000))); err != nil {
		t.Fatal(err)
	}
	s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Limits: ingest.Limits{MaxDecodeTime: time.Minute},
		Models: []workers.Config{{Name: "find", Source: "motion", Instances: 1}}})
	post := func(from string) {
		r, err := http.NewRequest(http.MethodPost, "http://"+s.Addr("http")+"/v2/models/find/infer",
			bytes.NewReader(large.Bytes()))
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Content-Type", "application/octet-stream")
		r.Header.Set("X-Forwarded-For", from)
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer got.Body.Close()
		if reply, _ := io.ReadAll(got.Body); got.StatusCode != http.StatusOK {
			t.Errorf("%d %s", got.StatusCode, reply)
		}
	}
	const many, few = 20, 3
	var answered atomic.Int64
	var clients sync.WaitGroup
	first := make(chan struct{})
	for range many {
		clients.Go(func() {
			if post("192.0.2.1"); answered.Add(1) == 1 {
				close(first)
			}
		})
	}
	<-first // most pictures wait from here on
	for range few {
		post("192.0.2.2")
	}
	// With turns, each of the few pictures waits for the pictures being decoded, and for one or two of the other
	// clients' pictures.
	if n := answered.Load(); n > many/2 {
		t.Errorf("%d pictures of a client with %d were answered before %d of another", n, many, few)
	}
	clients.Wait()
	if err := stop(); err != nil {
		t.Error(err)
	}
}
