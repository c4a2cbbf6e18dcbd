package tasks

import "maps"

// Usage is what the tasks of one owner take up.
type Usage struct {
	Waiting int   // tasks that have not ended
	Bytes   int64 // of the records, inputs, results and logs of all tasks
}

// Stats counts the tasks of a Store since Open. Of changes by other processes that follow on one another quickly, a
// Store may see only the last one. At each moment
//
//	Submitted + Found + Retried = the sum of Ended + Stored[Queued] + Stored[Running].
type Stats struct {
	Stored    map[State]int    // present tasks
	Bytes     int64            // of the inputs, results and logs of all tasks
	Submitted uint64           // new tasks
	Found     uint64           // tasks that had not ended at Open
	Retried   uint64           // ended tasks that Retry queued again
	Attempts  uint64           // claims
	Ended     map[State]uint64 // ends by state, and by Deleted
}

// Deleted is the key of Stats.Ended for queued tasks that were deleted. No task has this state.
const Deleted State = "deleted"

// counts counts the changes of an index.
type counts struct {
	Stats
	open bool // Open has returned: a new task is a submission
}

func newCounts() counts {
	return counts{Stats: Stats{Stored: map[State]int{}, Ended: map[State]uint64{}}}
}

// waiting returns the number of tasks that have not ended.
func (c *counts) waiting() int { return c.Stored[Queued] + c.Stored[Running] }

// change counts the change from a revision of a task to a later revision; old = nil: the task is new, t = nil: the
// task is deleted.
func (c *counts) change(old, t *Task) {
	if old != nil {
		c.Stored[old.State]--
	}
	if t == nil {
		if !old.State.Ended() {
			c.Ended[Deleted]++
		}
		return
	}
	c.Stored[t.State]++
	again := false // the task was queued again in between
	switch {
	case old != nil:
		again = old.State.Ended() && !old.Ended.Equal(t.Ended)
	case c.open:
		c.Submitted++
	case !t.State.Ended():
		c.Found++
	}
	if again {
		c.Retried++
	}
	if t.State.Ended() && (again || old == nil && c.open || old != nil && !old.State.Ended()) {
		c.Ended[t.State]++
	}
	switch { // a process that follows the changes of another process may not see each change
	case old != nil:
		c.Attempts += uint64(max(0, t.Attempt-old.Attempt))
	case c.open:
		c.Attempts += uint64(t.Attempt)
	}
}

// Stats returns the counts.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.index.counts.Stats
	st.Stored, st.Ended, st.Bytes = maps.Clone(st.Stored), maps.Clone(st.Ended), s.index.bytes
	return st
}
