package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// run is one measurement.
type run struct {
	cfg         Config
	frames      []*Frame
	senders     []*sender
	shards      []*shard
	origin      time.Time
	start       atomic.Int64  // of sending, since origin
	stop        chan struct{} // closed when no more is to be sent
	stopSending func()        // closes stop, once

	mu     sync.Mutex
	lostBy map[string]uint64

	// Of the goroutine that keeps the time.
	lastRow     time.Duration
	rows        []Row
	interrupted bool
	cutOff      bool // the connections were closed because senders hung
}

const (
	// shardCount is more than the processors that would meet at one lock.
	shardCount = 16
	// opening is how many streams are opened at the same time.
	opening = 64
	// slack is how long a frame that was due just before the end may come late.
	slack = 50 * time.Millisecond
	// maxRows bounds the rows of a report: a day of them.
	maxRows = 86400
)

// measureFrom is from when on rates and latencies count.
func (c *Config) measureFrom() time.Duration { return c.RampUp + c.Warmup }

func (r *run) now() time.Duration { return time.Since(r.origin) - time.Duration(r.start.Load()) }

// Run makes the load that c describes and returns what came of it. All streams
// are opened before the first frame is sent. When ctx ends, sending ends early,
// the frames on their way are waited for as usual, and the report says so. An
// error means that nothing was measured: a setting is out of bounds, or a stream
// could not be opened.
func Run(ctx context.Context, c Config) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r := &run{cfg: c.withDefaults(), stop: make(chan struct{}), lostBy: map[string]uint64{}}
	r.stopSending = sync.OnceFunc(func() { close(r.stop) })
	frames, err := r.cfg.frames()
	if err != nil {
		return nil, err
	}
	r.frames = frames
	for range min(shardCount, r.cfg.Streams) {
		r.shards = append(r.shards, &shard{cfg: &r.cfg, counts: newCounts(), row: newCounts()})
	}
	r.origin = time.Now()
	defer r.close()
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	r.send(ctx)
	r.drain()
	r.close()
	return r.report(), nil
}

// target is where the frames go.
func (c *Config) target() (Target, error) {
	switch {
	case c.Target != nil:
		return c.Target, nil
	case c.Protocol == RESTProtocol:
		t := REST{URL: c.address("http", "infer", nil), Header: c.Header, Tensor: c.Tensor, TLS: c.TLS}
		if c.Rate == 0 {
			t.InFlight = c.Window
		}
		return t, nil
	}
	more := map[string]string{}
	if c.Rate == 0 && c.Window > 1 {
		more["window"] = fmt.Sprint(c.Window)
	}
	header := http.Header{}
	for k, v := range c.Header {
		header.Set(k, v)
	}
	if c.Protocol == V1Protocol {
		return c.sessions(more, header)
	}
	return WebSocket{URL: c.address("ws", "stream", more), Header: header, TLS: c.TLS}, nil
}

// open opens the streams, some at a time.
func (r *run) open(ctx context.Context) error {
	t, err := r.cfg.target()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.senders = make([]*sender, r.cfg.Streams)
	for i := range r.senders {
		r.senders[i] = newSender(r, i)
	}
	places := make(chan struct{}, opening)
	var wg sync.WaitGroup
	for _, l := range r.senders {
		places <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-places }()
			conn, err := t.Open(ctx, l.index, l.ended)
			if err != nil {
				cancel(fmt.Errorf("stream %d of %d could not be opened: %w", l.index, len(r.senders), err))
				return
			}
			l.conn = conn
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// send runs the streams until they are done or the time is over.
func (r *run) send(ctx context.Context) {
	r.start.Store(int64(time.Since(r.origin)))
	var sending, clocks sync.WaitGroup
	for _, l := range r.senders {
		sending.Go(l.send)
	}
	sent := make(chan struct{})
	clocks.Go(func() { r.clock(ctx, sent) })
	// A sender may hang in a Send that the server does not take; what it has
	// been able to do is known when its connection is closed.
	sending.Wait()
	close(sent)
	clocks.Wait()
}

// clock ends the sending when it is time, and makes a row of each second.
func (r *run) clock(ctx context.Context, sent <-chan struct{}) {
	end := time.NewTimer(r.cfg.Duration + slack)
	defer end.Stop()
	var late <-chan time.Time
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	done := ctx.Done()
	for {
		select {
		case <-sent:
			r.stopSending()
			return
		case <-tick.C:
			r.second()
		case <-done:
			done, r.interrupted = nil, true
			r.stopSending()
			late = time.After(r.cfg.Grace)
		case <-end.C:
			r.stopSending()
			late = time.After(r.cfg.Grace)
		case <-late:
			r.cutOff = true
			r.close()
		}
	}
}

// drain waits for the last endings.
func (r *run) drain() {
	by := time.NewTimer(r.cfg.Grace)
	defer by.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	next := r.lastRow + time.Second
	for {
		if r.now() >= next {
			r.second()
			next += time.Second
		}
		if r.cutOff || r.settled() {
			break
		}
		select {
		case <-look.C:
			continue
		case <-by.C:
		}
		break
	}
	r.second()
}

// settled says whether no stream has an ending to wait for.
func (r *run) settled() bool {
	for _, l := range r.senders {
		select {
		case <-l.broken:
			continue
		default:
		}
		if l.open() > 0 {
			return false
		}
	}
	return true
}

// close ends the connections. It may be called twice.
func (r *run) close() {
	places := make(chan struct{}, opening)
	var wg sync.WaitGroup
	for _, l := range r.senders {
		if l == nil || l.conn == nil {
			continue
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			_ = l.conn.Close() // what it has to say of frames is told by their endings
		})
	}
	wg.Wait()
}

// lost counts a stream that broke. What the error says is the key, cut short
// and few of them: the report stays small.
func (r *run) lost(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := errors.Unwrap(err); e != nil; e = errors.Unwrap(err) {
		err = e // addresses and ports would make every one different
	}
	text := err.Error()
	if len(text) > 200 {
		text = text[:200]
	}
	if _, ok := r.lostBy[text]; !ok && len(r.lostBy) >= 16 {
		text = "other"
	}
	r.lostBy[text]++
}

// second makes a row of what came since the last one.
func (r *run) second() {
	now := r.now()
	sum := newCounts()
	for _, s := range r.shards {
		s.mu.Lock()
		sum.merge(&s.row)
		s.row.reset()
		s.mu.Unlock()
	}
	if sum.sentN+sum.answered+total(sum.drops)+total(sum.errors) == 0 && now-r.lastRow < time.Second/10 {
		return // the end of the last second
	}
	row := rowOf(&sum, now, now-r.lastRow)
	for _, l := range r.senders {
		row.Open += l.open()
	}
	r.lastRow = now
	if len(r.rows) < maxRows {
		r.rows = append(r.rows, row)
	}
	if r.cfg.Progress != nil {
		r.cfg.Progress(row)
	}
}
