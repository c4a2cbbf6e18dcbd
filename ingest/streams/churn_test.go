package streams_test

import (
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest/streams"
	"millrace/internal/child"
)

// After two hundred watchers of every kind have come and gone, before and after their first line or picture, the
// numbers of goroutines, descriptors and processes and the memory are as before.
func TestWatchersComeAndGo(t *testing.T) {
	if testing.Short() {
		t.Skip("reads a video in real time")
	}
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip(err)
	}
	r := start(t, streams.Options{})
	others(r, "a")
	r.streams.Add(t, streams.Config{Name: "door", Source: clip(t, 2), Loop: true,
		Models: []streams.ModelConfig{{Model: "eyes"}, {Model: "a"}}})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	status := func() (s shown) { // without a kept-alive connection
		s = r.show("door")
		http.DefaultClient.CloseIdleConnections()
		return s
	}
	type use struct{ goroutines, descriptors, processes, leases int }
	now := func() use {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return use{runtime.NumGoroutine(), len(fds), int(child.LiveChildren()), int(r.mem.Stats().Leases)}
	}
	visit := func(n int) {
		path, read := r.url+"/v2/streams/door/", n%4 != 0
		model := []string{"", "?model=a", "?model=eyes"}[n%3]
		switch n % 5 {
		case 0:
			ws, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(path, "http")+"results"+model,
				http.Header{"Origin": {r.url}})
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
			if read {
				_ = ws.SetReadDeadline(time.Now().Add(patience))
				if _, _, err := ws.ReadMessage(); err != nil {
					t.Error(err)
				}
			}
			_ = ws.Close()
			return
		case 1, 2:
			path += "video"
		default:
			path += "results"
		}
		resp, err := client.Get(path + model)
		if err != nil || resp.StatusCode != 200 {
			t.Error(resp, err)
			return
		}
		if read {
			if _, err := io.ReadFull(resp.Body, make([]byte, 100)); err != nil {
				t.Error(err)
			}
		}
		_ = resp.Body.Close()
	}
	round := func(watchers int) {
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				for n := i; n < watchers; n += 10 {
					visit(n)
				}
			})
		}
		all.Wait()
		r.until("door", "nobody watches", func(s shown) bool { return s.Watchers == 0 })
	}
	round(20) // starts everything that starts once and stays
	before, restarts := now(), status().Restarts
	round(200)
	// Frames in flight hold up to two leases for each model and some for the source.
	for limit := time.Now().Add(patience); ; <-time.After(10 * time.Millisecond) {
		status()
		after := now()
		if after.goroutines <= before.goroutines+3 && after.descriptors <= before.descriptors+3 &&
			after.processes == 1 && after.leases <= 8 {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("%+v before, %+v after", before, after)
		}
	}
	if s := status(); s.Restarts != restarts || s.State != "running" {
		t.Errorf("%+v", s)
	}
}
