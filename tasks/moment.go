package tasks

import (
	"time"

	"millrace/stream"
)

// moment is a time of day, which may jump, and a time of the clock of the process, which does not jump.
type moment struct {
	wall time.Time
	mono stream.Instant
}

// readClock returns the present moment.
func readClock() moment { return momentOf(time.Now()) }

// momentOf returns the moment of a time of time.Now.
func momentOf(t time.Time) moment { return moment{t.Round(0).UTC(), stream.InstantOf(t)} }

// now returns the present moment.
func (s *Store) now() moment { return s.opts.clock() }
