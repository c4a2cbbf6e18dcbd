package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"millrace/client/load"
)

// hold asks a child to keep idle streams open.
type hold struct {
	Addr    string        `json:"addr"`
	Model   string        `json:"model"`
	V1      bool          `json:"v1,omitempty"`   // millrace.v1, load.PerSession streams to a connection; else one each
	Streams int           `json:"streams"`        // to keep, the newest ones
	Rate    float64       `json:"rate,omitempty"` // streams to open a second; 0 = as fast as can be
	For     time.Duration `json:"for,omitempty"`  // how long to open streams; 0 = until there are Streams
}

// openers is how many streams are opened concurrently.
const openers = 32

// held are the idle streams of a child, the oldest first.
type held struct {
	mu      sync.Mutex
	streams []io.Closer
	opened  int
	err     error // the first
}

func (h *hold) opener() (func(n int) (io.Closer, error), error) {
	if h.V1 {
		t, err := load.NewSessions(h.Addr, h.Model, map[string]string{"policy": "latest"}, http.Header{})
		return func(n int) (io.Closer, error) {
			return t.Open(context.Background(), n, func(load.Ending) {})
		}, err
	}
	d := &websocket.Dialer{ReadBufferSize: 1 << 10, WriteBufferSize: 1 << 10, HandshakeTimeout: 10 * time.Second}
	url := fmt.Sprintf("ws://%s/v2/models/%s/stream?policy=latest", h.Addr, h.Model)
	return func(int) (io.Closer, error) {
		c, _, err := d.Dial(url, nil)
		if err != nil {
			return nil, err
		}
		go answerPings(c) // ends with the connection
		return c, nil
	}, nil
}

func answerPings(c *websocket.Conn) {
	for {
		if _, _, err := c.NextReader(); err != nil {
			return
		}
	}
}

// keep opens the streams of j, and closes the oldest streams beyond the limit.
func (h *held) keep(j *hold) error {
	open, err := j.opener()
	if err != nil {
		return err
	}
	began := time.Now()
	more := func(n int) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.err == nil && (j.For > 0 && time.Since(began) < j.For || j.For == 0 && n < j.Streams)
	}
	slots := make(chan struct{}, openers)
	var wg sync.WaitGroup
	for n := 0; more(n); n++ {
		if j.Rate > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(float64(n) / j.Rate * float64(time.Second)))))
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			c, err := open(n)
			if old := h.add(c, err, j.Streams); old != nil {
				_ = old.Close()
			}
		})
	}
	wg.Wait()
	return h.err
}

// add adds a stream, and returns the oldest stream when more than most are held.
func (h *held) add(c io.Closer, err error, most int) (old io.Closer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		if h.err == nil {
			h.err = fmt.Errorf("stream %d: %w", h.opened, err)
		}
		return nil
	}
	h.opened++
	h.streams = append(h.streams, c)
	if len(h.streams) > most {
		old, h.streams = h.streams[0], h.streams[1:]
	}
	return old
}

func (h *held) close() {
	slots := make(chan struct{}, openers)
	var wg sync.WaitGroup
	for _, c := range h.streams {
		slots <- struct{}{}
		wg.Go(func() {
			_ = c.Close() // no frame is in flight
			<-slots
		})
	}
	wg.Wait()
}
