package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"millrace/stream"
)

type run struct {
	cfg         Config
	frames      []*Frame
	senders     []*sender
	shards      []*shard
	origin      time.Time
	start       atomic.Int64  // of sending, since origin
	stop        chan struct{} // closed when sending must stop
	stopSending func()        // closes stop, once

	mu     sync.Mutex
	lostBy map[string]uint64

	first   firstFrames
	givenUp atomic.Bool // the first frames all failed with the same error

	// Used only by the goroutine of clock, and after its end.
	lastRow     time.Duration
	rows        []Row
	interrupted bool
	forced      bool // the connections were closed because senders blocked
}

const (
	// shardCount is large enough that senders seldom wait for each other's lock.
	shardCount = 16
	// maxOpening is how many streams are opened, or closed, at the same time.
	maxOpening = 64
	// slack is how late a frame due just before the end may be sent.
	slack = 50 * time.Millisecond
	// maxRows bounds the rows of a report: one day.
	maxRows = 86400
)

// measureFrom returns the start of the measured time.
func (c *Config) measureFrom() time.Duration { return c.RampUp + c.Warmup }

func (r *run) now() time.Duration { return time.Since(r.origin) - time.Duration(r.start.Load()) }

// Run generates the load described by c and reports the result. Run opens all streams before sending the first frame.
// When ctx ends, sending stops early, Run waits for the frames in flight as usual, and the report is marked as
// interrupted. An error means no measurement: a setting is out of bounds, or a stream could not be opened.
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
		r.shards = append(r.shards, &shard{cfg: &r.cfg, counts: newCounts(), row: newCounts(),
			first: map[stream.Code]firstError{}})
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

// target returns the target of the frames.
func (c *Config) target() (Target, error) {
	all := map[string]string{}
	if c.Token != "" {
		all["Authorization"] = "Bearer " + c.Token
	}
	for k, v := range c.Header {
		all[http.CanonicalHeaderKey(k)] = v
	}
	switch {
	case c.Target != nil:
		return c.Target, nil
	case c.Protocol == RESTProtocol:
		t := REST{URL: c.address("http", "infer", nil), Header: all, Tensor: c.Tensor, TLS: c.TLS}
		if c.Any {
			t.URL, t.Element = c.anyTensor()
		}
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
	for k, v := range all {
		header.Set(k, v)
	}
	if c.Protocol == V1Protocol {
		return c.sessions(more, header)
	}
	return WebSocket{URL: c.address("ws", "stream", more), Header: header, TLS: c.TLS}, nil
}

// open opens the streams, at most maxOpening at a time.
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
	places := make(chan struct{}, maxOpening)
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
				if len(r.senders) > 1 {
					err = fmt.Errorf("stream %d of %d could not be opened: %w", l.index+1, len(r.senders), err)
				}
				cancel(err)
				return
			}
			l.conn = conn
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// send runs the streams until all are done.
func (r *run) send(ctx context.Context) {
	r.start.Store(int64(time.Since(r.origin)))
	var sending, clocks sync.WaitGroup
	for _, l := range r.senders {
		sending.Go(l.send)
	}
	sent := make(chan struct{})
	clocks.Go(func() { r.clock(ctx, sent) })
	// A sender may block in a Send not accepted by the server. Send returns when the connection is closed.
	sending.Wait()
	close(sent)
	clocks.Wait()
}

// clock stops the sending at its end, and adds a row for each second.
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
			r.forced = true
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
		if r.forced || r.allEnded() {
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

// allEnded reports whether no stream waits for an ending.
func (r *run) allEnded() bool {
	for _, l := range r.senders {
		select {
		case <-l.failed:
			continue
		default:
		}
		if l.open() > 0 {
			return false
		}
	}
	return true
}

// close ends the connections. close may be called twice.
func (r *run) close() {
	places := make(chan struct{}, maxOpening)
	var wg sync.WaitGroup
	for _, l := range r.senders {
		if l == nil || l.conn == nil {
			continue
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			_ = l.conn.Close() // errors of frames are in their endings
		})
	}
	wg.Wait()
}

// firstFrames has how the first frames ended, until Config.GiveUp is decided.
type firstFrames struct {
	decided atomic.Bool
	mu      sync.Mutex
	failed  int
	text    string // of the common error
}

// checkGiveUp stops the sending when the first Config.GiveUp frames all failed with the same error. e is an ending of a
// frame.
func (r *run) checkGiveUp(e *Ending) {
	f := &r.first
	if r.cfg.GiveUp == 0 || f.decided.Load() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.decided.Load() {
		return
	}
	if e.Outcome != stream.Failed || f.failed > 0 && e.Err.Error() != f.text {
		f.decided.Store(true)
		return
	}
	f.failed, f.text = f.failed+1, e.Err.Error()
	if f.failed >= r.cfg.GiveUp {
		f.decided.Store(true)
		r.givenUp.Store(true)
		r.stopSending()
	}
}

// lost counts a failed stream, by the text of the error. Length and number of the texts are bounded, so that the
// report stays small.
func (r *run) lost(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := errors.Unwrap(err); e != nil; e = errors.Unwrap(err) {
		err = e // the outer errors have addresses and ports, different in every text
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

// second adds a row of the endings since the last row.
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
		return // nothing is left to report
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
