package load

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"millrace/internal/histogram"
	"millrace/stream"
)

// shard has the counts of a group of streams, so that senders of different shards do not wait for each other's lock.
type shard struct {
	cfg *Config
	mu  sync.Mutex
	counts
	first  map[stream.Code]firstError
	row    counts        // of this second
	latest time.Duration // time of the newest ending
}

// firstError is the first message of all errors with the same code, and its time.
type firstError struct {
	at   time.Duration
	text string
}

// maxMessage bounds a kept message, in characters.
const maxMessage = 500

// keep keeps the message of an error, unless an earlier error has the same code.
func (s *shard) keep(code stream.Code, err error, at time.Duration) {
	if _, kept := s.first[code]; !kept {
		s.first[code] = firstError{at, fmt.Sprintf("%.*s", maxMessage, strings.ToValidUTF8(err.Error(), "\uFFFD"))}
	}
}

// mergeFirst puts the messages of the shard into all where earlier than the messages in all.
func (s *shard) mergeFirst(all map[stream.Code]firstError) {
	for code, e := range s.first {
		if kept, ok := all[code]; !ok || e.at < kept.at {
			all[code] = e
		}
	}
}

// counts has the numbers of frames by their endings, and their times.
type counts struct {
	sentN, answered, good, partials, unexpected uint64
	measured, measuredGood                      uint64 // answers in the measured time
	batchSum, batchN                            uint64
	drops                                       map[stream.Reason]uint64
	errors                                      map[stream.Code]uint64
	latency, service, lag, dropAge              histogram.Durations
}

func (t *counts) reset() {
	clear(t.drops)
	clear(t.errors)
	for _, h := range []*histogram.Durations{&t.latency, &t.service, &t.lag, &t.dropAge} {
		h.Reset()
	}
	*t = counts{drops: t.drops, errors: t.errors, latency: t.latency, service: t.service, lag: t.lag,
		dropAge: t.dropAge}
}

func newCounts() counts {
	return counts{drops: map[stream.Reason]uint64{}, errors: map[stream.Code]uint64{}}
}

func (t *counts) merge(o *counts) {
	t.sentN += o.sentN
	t.answered += o.answered
	t.good += o.good
	t.partials += o.partials
	t.unexpected += o.unexpected
	t.measured += o.measured
	t.measuredGood += o.measuredGood
	t.batchSum += o.batchSum
	t.batchN += o.batchN
	for k, n := range o.drops {
		t.drops[k] += n
	}
	for k, n := range o.errors {
		t.errors[k] += n
	}
	t.latency.Merge(&o.latency)
	t.service.Merge(&o.service)
	t.lag.Merge(&o.lag)
	t.dropAge.Merge(&o.dropAge)
}

func (s *shard) sent(due, at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sentN++
	s.row.sentN++
	if due >= s.cfg.measureFrom() {
		s.lag.Add(at - due)
	}
}

// ended counts an ending, and reports whether the ending was an answer in the measured time.
func (s *shard) ended(e *Ending, m sentFrame, known bool, now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !known:
		s.unexpected++
		return false
	case e.Partial:
		s.partials++
		return false
	}
	s.latest = max(s.latest, now)
	from, age := s.cfg.measureFrom(), now-m.due
	good := s.cfg.Deadline == 0 || age <= s.cfg.Deadline
	inside := false
	code := stream.Code("")
	if e.Outcome == stream.Failed {
		code = stream.CodeOf(e.Err)
		s.keep(code, e.Err, now)
	}
	for _, t := range []*counts{&s.counts, &s.row} {
		switch e.Outcome {
		case stream.Dropped:
			t.drops[e.Reason]++
		case stream.Failed:
			t.errors[code]++
		default:
			t.answered++
			if good {
				t.good++
			}
			if e.Batch > 0 {
				t.batchSum += uint64(e.Batch)
				t.batchN++
			}
			if inside = now >= from && now <= s.cfg.Duration; inside {
				t.measured++
				if good {
					t.measuredGood++
				}
			}
			if m.due >= from {
				t.latency.Add(age)
			}
			if m.due >= from && t == &s.counts {
				t.service.Add(now - m.sent)
			}
		}
		if e.Outcome == stream.Dropped && m.due >= from && t == &s.counts {
			t.dropAge.Add(age)
		}
	}
	return inside
}
