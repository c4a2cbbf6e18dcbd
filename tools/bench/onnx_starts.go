package main

import (
	"sync"
	"time"
)

// phase determines when the bare loops begin their runs. With weights larger than the caches, the phase determines
// the speed.
type phase string

const (
	free      phase = ""          // each when its last run has ended
	inStep    phase = "in step"   // all at the same time, to share the cached weights
	staggered phase = "staggered" // each half a run after the previous loop, to share no cached weights
)

// starts keeps the loops in their phase.
type starts struct {
	phase phase

	mu      sync.Mutex
	changed *sync.Cond
	loops   int // running loops
	waiting int // in step: loops ready to begin
	round   int

	last *bound // staggered: the loop that began last
	at   time.Time
}

func newStarts(p phase, loops int) *starts {
	s := &starts{phase: p, loops: loops}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// wait returns when a loop may begin a run; took is the time of the loop's last run.
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

// leave ends a loop's part: other loops do not wait for the loop.
func (s *starts) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loops--; s.waiting > 0 && s.waiting == s.loops {
		s.next()
	}
}
