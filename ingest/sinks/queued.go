package sinks

import (
	"context"
	"errors"
	mrand "math/rand/v2"
	"strings"
	"time"

	"millrace/internal/backoff"
	"millrace/internal/video"
)

// queued has the waiting results of a sink that delivers over the network.
type queued struct {
	queue   chan []byte     // closed by Close
	closing context.Context // ended by Close
	end     context.CancelFunc
	keeps   bool // Env.Keeps

	counters
}

// begin makes the queue, with room for size results.
func (q *queued) begin(size int, e Env) {
	q.queue, q.keeps, q.settled = make(chan []byte, size), e.Keeps, e.Settled
	q.closing, q.end = context.WithCancel(context.Background())
}

// Write implements Sink.
func (q *queued) Write(line []byte) {
	select {
	case q.queue <- line:
	default:
		q.lost.Add(1)
	}
}

// Close implements Sink.
func (q *queued) Close() {
	close(q.queue)
	q.end()
}

// attempts calls attempt again and again until attempt returns that no result is left, and a last time after Close or
// the end of ctx. attempt connects and delivers until the connection fails. pending returns the number of results that
// attempt has taken from the queue, and not delivered.
func (q *queued) attempts(ctx context.Context, pause *backoff.Backoff, attempt func() (over bool),
	pending func() int) {
	for {
		ending := q.closing.Err() != nil || ctx.Err() != nil // this attempt is the last
		if attempt() {
			return
		}
		if ending {
			break
		}
		t := time.NewTimer(pause.Next(mrand.Float64()))
		select {
		case <-t.C:
		case <-q.closing.Done():
		case <-ctx.Done():
		}
		t.Stop()
		q.retries.Add(1)
	}
	left := uint64(pending())
	for range q.queue { // until Close
		left++
	}
	if !q.keeps {
		q.settle(0, left)
	}
}

// failureOf records a failure of the named kind of sink, without the passwords of addresses. first says that the
// failure is the first in a row.
func (c *counters) failureOf(kind string, err error) (text string, first bool) {
	first = c.failure.Load() == nil
	text = video.Redact(err.Error())
	if !strings.HasPrefix(text, "sinks.") {
		text = "sinks." + kind + ": " + text
	}
	c.fail(errors.New(text))
	return text, first
}
