package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// watcher reads the results of a server stream.
type watcher struct {
	mu   sync.Mutex
	seen []arrival
	err  error // of a failed frame
}

// arrival is a result with its age since the server's receipt of the frame, and the frame's time by its source.
type arrival struct {
	at  time.Time
	age time.Duration
	pts time.Duration
}

// watch reads until ctx ends, or the server ends the connection.
func (w *watcher) watch(ctx context.Context, addr, name string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/v2/streams/"+name+"/results", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/x-ndjson")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return fmt.Errorf("the results of %s: %s: %s", name, resp.Status, text)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		w.line(lines.Bytes(), time.Now())
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the results of %s ended: %v", name, lines.Err())
}

func (w *watcher) line(text []byte, now time.Time) {
	if len(text) == 0 {
		return // a heartbeat
	}
	var m struct {
		Received int64           `json:"received_us"`
		PTS      int64           `json:"pts_us"`
		Error    json.RawMessage `json:"error"`
	}
	err := json.Unmarshal(text, &m)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		w.err = err
	case m.Error != nil:
		w.err = fmt.Errorf("a frame failed: %s", m.Error)
	case m.Received > 0:
		w.seen = append(w.seen, arrival{now, now.Sub(time.UnixMicro(m.Received)),
			time.Duration(m.PTS) * time.Microsecond})
	}
}

// count returns the number of results.
func (w *watcher) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seen)
}

// failed returns the error of a frame.
func (w *watcher) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// between returns the ages of the results that arrived in a span of time.
func (w *watcher) between(from, to time.Time) (ages []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seen {
		if !s.at.Before(from) && s.at.Before(to) {
			ages = append(ages, s.age)
		}
	}
	return ages
}

// sinceCapture returns the ages, since the source sent the frames, of the results that arrived in a span of time. The
// frame received earliest, relative to its source's time, gives the difference between the clocks: the delay of that
// frame in the source and in ffmpeg is left out.
func (w *watcher) sinceCapture(from, to time.Time) (ages []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var zero time.Time // when the source sent a frame with the time 0
	for i, s := range w.seen {
		if at := s.at.Add(-s.age - s.pts); i == 0 || at.Before(zero) {
			zero = at
		}
	}
	for _, s := range w.seen {
		if !s.at.Before(from) && s.at.Before(to) {
			ages = append(ages, s.at.Sub(zero.Add(s.pts)))
		}
	}
	return ages
}

// p99 returns the 99th percentile in ms.
func p99(ages []time.Duration) float64 {
	if len(ages) == 0 {
		return 0
	}
	slices.Sort(ages)
	return ages[(len(ages)*99+99)/100-1].Seconds() * 1000
}
