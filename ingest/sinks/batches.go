package sinks

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"millrace/internal/backoff"
)

const (
	batchQueue    = 1000             // maximum number of waiting results; further results are lost
	batchMost     = 256              // results published before the first acknowledgement
	batchTimeout  = 10 * time.Second // of connecting, and of the acknowledgements of a batch
	batchAttempts = 8                // batches that may fail with one unacknowledged result as the first
)

// message is a result or an event, with an id that is the same for each attempt: of the event, or of this sink.
type message struct {
	id   string
	text []byte
}

// publisher is a client of a broker, for one goroutine.
type publisher interface {
	// connect opens the connection.
	connect(ctx context.Context) error
	// publish publishes messages. ended has the ends of the first len(ended) messages, in order: nil, or the reason why
	// the broker never takes the message. err is the reason why further messages have no end.
	publish(ctx context.Context, list []message) (ended []error, err error)
	// close closes the connection, if one is open.
	close()
}

// batches publishes results in order to a broker, a batch at a time. Results without an acknowledgement are published
// again.
type batches struct {
	publisher
	kind, stream, host string
	invalid            error // of the address
	log                *slog.Logger
	backoff            backoff.Backoff
	run                string // begins the ids of results
	number             uint64 // of the newest result
	events             bool

	pending  []message // of Run
	failures int       // batches that failed since pending[0] became the oldest

	queued
}

// newBatches returns the sink with a publisher to an address; address is nil when invalid says why there is none.
func newBatches(kind string, address *url.URL, invalid error, e Env, events bool, p publisher) *batches {
	host := ""
	if address != nil {
		host = address.Host
	}
	s := &batches{publisher: p, kind: kind, stream: e.Stream, host: host, invalid: invalid, log: e.Log, events: events,
		run: rand.Text(), backoff: backoff.Backoff{Min: 500 * time.Millisecond, Max: 30 * time.Second}}
	s.begin(batchQueue, e)
	return s
}

// Run implements Sink. Run connects before the first result, so that a wrong address is noticed early.
func (s *batches) Run(ctx context.Context) {
	last, stop := afterGrace(ctx)
	defer stop()
	s.attempts(ctx, &s.backoff, func() (over bool) {
		defer s.close()
		err := s.connectIn(last)
		for err == nil {
			if len(s.pending) == 0 && !s.gather() {
				return true
			}
			err = s.publishBatch(last)
		}
		s.failed(err)
		return false
	}, func() int { return len(s.pending) })
}

func (s *batches) connectIn(last context.Context) error {
	if s.invalid != nil {
		return s.invalid
	}
	ctx, cancel := context.WithTimeout(last, batchTimeout)
	defer cancel()
	err := s.connect(ctx)
	if err == nil && len(s.pending) == 0 { // otherwise the broker has yet to acknowledge a result
		s.connected()
	}
	return err
}

// gather waits for results. gather returns false after Close when no result is left.
func (s *batches) gather() bool {
	line, more := <-s.queue
	if !more {
		return false
	}
	for s.add(line); len(s.pending) < batchMost; s.add(line) {
		select {
		case line, more = <-s.queue:
			if !more {
				return true
			}
		default:
			return true
		}
	}
	return true
}

func (s *batches) add(line []byte) {
	s.number++
	m := message{fmt.Sprintf("%s-%d", s.run, s.number), line}
	var event struct {
		ID string `json:"id"`
	}
	if s.events && json.Unmarshal(line, &event) == nil && event.ID != "" {
		m.id = event.ID
	}
	s.pending = append(s.pending, m)
}

// publishBatch publishes the pending results, and removes the results with an end.
func (s *batches) publishBatch(last context.Context) error {
	ctx, cancel := context.WithTimeout(last, batchTimeout)
	defer cancel()
	list := s.pending
	if s.failures > 0 {
		list = list[:1] // so that no other result ends the attempt
	}
	ended, err := s.publish(ctx, list)
	for _, refusal := range ended {
		s.pending, s.failures = s.pending[1:], 0
		s.backoff.Reset()
		if refusal != nil {
			s.failed(refusal)
			s.settle(0, 1)
			continue
		}
		s.connected()
		s.settle(1, 0)
	}
	if len(s.pending) == 0 {
		s.pending = nil
	}
	if err != nil && last.Err() == nil {
		if s.failures++; s.failures == batchAttempts && !s.keeps {
			s.pending, s.failures = s.pending[1:], 0
			s.settle(0, 1)
		}
	}
	return err
}

// connected records that the broker takes results, and logs the end of a failure.
func (s *batches) connected() {
	if s.failure.Load() != nil {
		s.fail(nil)
		s.log.Info("a stream's broker takes results again", "stream", s.stream, "sink", s.kind, "address", s.host)
	}
}

// failed records a failure, and logs the first failure in a row.
func (s *batches) failed(err error) {
	text, first := s.failureOf(s.kind, err)
	if first {
		s.log.Warn("a stream's results do not reach the broker: up to 1000 results wait", "stream", s.stream, "sink",
			s.kind, "error", text)
	}
}
