package main

import (
	"sync"
	"time"
)

// phase says when the bare loops begin their runs. Where the weights are larger than the
// caches it decides how fast they are.
type phase string

const (
	free      phase = ""          // each when its last run has ended
	inStep    phase = "in step"   // all at once, so that they share what the cache has of the weights
	staggered phase = "staggered" // each half a run after the one before, so that they do not
)

// starts keeps the loops in their phase.
type starts struct {
	phase phase

	mu      sync.Mutex
	changed *sync.Cond
	loops   int // that have not left
	waiting int // in step: those that are ready
	round   int

	last *bound // staggered: the loop that began last
	at   time.Time
}

func newStarts(p phase, loops int) *starts {
	s := &starts{phase: p, loops: loops}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// wait returns when a loop may begin a run; took is the time of its last one.
func (s *starts) wait(who *bound, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.phase {
	case inStep:
		s.waiting++
		for round := s.round; s.round == round; {
			if s.waiting == s.loops {
				s.next()
				break
			}
			s.changed.Wait()
		}
	case staggered:
		for s.last != nil && s.last != who {
			left := time.Until(s.at.Add(took / 2))
			if left <= 0 {
				break
			}
			s.mu.Unlock()
			time.Sleep(left)
			s.mu.Lock()
		}
		s.last, s.at = who, time.Now()
	}
}

func (s *starts) next() {
	s.waiting = 0
	s.round++
	s.changed.Broadcast()
}

// leave ends a loop's part: the others do not wait for it.
func (s *starts) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loops--; s.waiting > 0 && s.waiting == s.loops {
		s.next()
	}
}
