package streams_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/ingest/history"
	"millrace/ingest/sinks"
	"millrace/ingest/streams"
	"millrace/internal/setting"
	"millrace/stream/rules"
)

// Events wait on disk for a receiver that is away, also over a restart of the server, and then come once and in order.
// Each event is sent, lost or waiting. Without a working disk, a receiver gets events, too.
func TestEventsWaitForAReceiver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	folder, pictures := t.TempDir(), toAndFro(t)
	var h *history.History
	begin := func(paused bool) *rig {
		t.Helper()
		h = history.New(history.Options{Folder: folder})
		r := start(t, streams.Options{AllowPrivate: true, History: h})
		r.load(people)
		d := streams.NewDraft()
		if err := d.Table().SetJSON(fmt.Appendf(nil, `{"name":"gate","model":"people","fps":100,"loop":true,
			"source":"folder:%s","policy":"every","paused":%v,
			"rules":{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1]}]},
			"sinks":{"webhook":"http://%s/","webhook_send":"events"}}`, pictures, paused, addr),
			setting.Field.SetAny); err != nil {
			t.Fatal(err)
		}
		c, err := d.Config()
		if err != nil {
			t.Fatal(err)
		}
		r.streams.Add(t, c)
		return r
	}
	until := func(r *rig, what string, ok func(sinks.Stats) bool) (st sinks.Stats) {
		t.Helper()
		for limit := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			all := r.streams.Stats().Streams
			if st = all[0].Sinks["webhook"]; ok(st) {
				return st
			}
			if time.Now().After(limit) {
				t.Fatalf("not %s: %+v", what, st)
			}
		}
	}
	// kept returns the ids of the events of the history.
	kept := func() (ids []string) {
		t.Helper()
		list, _, err := h.Events(t.Context(), history.Query{Oldest: true, Limit: history.MaxLimit})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			ids = append(ids, e.ID)
		}
		return ids
	}

	r := begin(false)
	if st := until(r, "waiting", func(st sinks.Stats) bool { return st.Waiting >= 8 && st.Error != "" }); st.Sent+
		st.Lost != 0 {
		t.Errorf("%+v", st)
	}
	r.stop()

	var got []string
	if l, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	receiver := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		var body struct {
			Stream string
			Events []rules.Event
		}
		if err := json.NewDecoder(req.Body).Decode(&body); err != nil || body.Stream != "gate" {
			t.Errorf("%+v, %v", body, err)
		}
		for _, e := range body.Events {
			got = append(got, e.ID)
		}
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = receiver.Serve(l) }()
	r = begin(true)
	st := until(r, "sent", func(st sinks.Stats) bool { return st.Sent >= 8 && st.Waiting == 0 })
	want := kept()
	if st.Lost != 0 || st.Error != "" || st.Sent != uint64(len(want)) {
		t.Errorf("%+v of %d events", st, len(want))
	}
	r.want(200, "PATCH", "/v2/streams/gate", `{"paused":false}`)
	until(r, "sent", func(now sinks.Stats) bool { return now.Sent >= st.Sent+8 })
	// A change of the sink neither loses nor repeats an event.
	r.want(200, "PATCH", "/v2/streams/gate", `{"sinks":{"webhook_secret":"other"}}`)
	until(r, "sent by the new sink", func(now sinks.Stats) bool { return now.Sent >= 4 })
	// While the database of the history does not work, events go to the receiver from memory.
	if err := errors.Join(os.Rename(folder, folder+".away"), os.WriteFile(folder, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(patience); h.Stats().Err == nil && time.Now().Before(limit); {
		time.Sleep(5 * time.Millisecond)
	}
	sent := until(r, "sent", func(sinks.Stats) bool { return true }).Sent
	until(r, "sent without a database", func(now sinks.Stats) bool { return now.Sent >= sent+8 })
	r.want(200, "PATCH", "/v2/streams/gate", `{"paused":true}`)
	n := 0
	until(r, "all sent", func(now sinks.Stats) bool { n++; return now.Waiting == 0 && n > 100 })
	if st := h.Stats(); st.Err == nil || st.Waiting < 8 || st.Lost != 0 {
		t.Errorf("%+v", st)
	}
	if err := errors.Join(os.Remove(folder), os.Rename(folder+".away", folder)); err != nil {
		t.Fatal(err)
	}
	r.stop() // writes the events
	r = begin(true)
	n = 0
	until(r, "nothing more sent", func(now sinks.Stats) bool { n++; return now.Waiting == 0 && n > 100 })
	want = kept()
	r.stop()
	_ = receiver.Close()
	<-ended
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s, want\n%s", strings.Join(got, " "), strings.Join(want, " "))
	}
}
