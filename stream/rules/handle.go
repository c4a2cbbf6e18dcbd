package rules

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Handle connects the owner of a stream to the stage that applies its rules: the owner may change the rules while the
// stream runs, and the state of the rules outlives workers and streams. A nil Handle has no rules.
type Handle struct {
	rules atomic.Pointer[Rules]

	using sync.Mutex
	live  Live // under using
}

// Live is the state of the rules of a stream.
type Live struct {
	Engine Engine // of the stage; nil at first
	Tally  Tally  // of the events of the engine
	Heat   *Heat  // of the objects of the engine; nil = not kept
	// Events are events of an engine before, saved by another process, for the next frame. Restore may add events while
	// there is an engine.
	Events []Event
}

// Engine has the objects of a stream.
type Engine interface {
	// Pending returns the events for the next frame, and the events if all objects vanished now.
	Pending() (next, ending []Event)
	// Finish ends all objects and returns the events that no result has had.
	Finish() []Event
}

// NewHandle returns a handle with rules, which must be valid; nil means none.
func NewHandle(r *Rules) *Handle {
	h := &Handle{}
	h.Set(r)
	return h
}

// Rules returns the present rules, or nil if there are none.
func (h *Handle) Rules() *Rules {
	if h == nil {
		return nil
	}
	return h.rules.Load()
}

// Set changes the rules from the stream's next frame on. Without rules the counts end, and objects leave no zone.
func (h *Handle) Set(r *Rules) {
	if r.Empty() {
		r = nil
	}
	h.rules.Store(r)
}

// Use calls f with the state of the rules. The calls of f run one after another, also for frames of several workers or
// streams.
func (h *Handle) Use(f func(*Live)) {
	h.using.Lock()
	defer h.using.Unlock()
	f(&h.live)
}

// End ends all objects at the end of a video, so that crossings beyond a line count, and returns the events that no
// result has had. A nil handle has no objects.
func (h *Handle) End() (list []Event) {
	if h == nil {
		return nil
	}
	h.Use(func(l *Live) {
		list, l.Events = l.Events, nil
		if l.Engine != nil {
			list = append(list, l.Engine.Finish()...)
		}
	})
	return list
}

// KeepHeat keeps where objects are from now on. KeepHeat is called before the handle is used.
func (h *Handle) KeepHeat() { h.live.Heat = new(Heat) }

// Clear forgets the objects, the counts and the heat, when there are no rules.
func (l *Live) Clear() {
	l.Heat.clear()
	*l = Live{Heat: l.Heat}
}

// Heat returns where objects were in the last minutes, if KeepHeat was called.
func (h *Handle) Heat(at time.Time, minutes int) HeatMap {
	h.using.Lock()
	defer h.using.Unlock()
	return h.live.Heat.Map(at, minutes)
}

// Counts returns the numbers at a time.
func (h *Handle) Counts(at time.Time) Counts {
	h.using.Lock()
	defer h.using.Unlock()
	return h.live.Tally.Counts(h.Rules(), at)
}

// Reset makes all counts 0. Objects stay in their zones.
func (h *Handle) Reset(at time.Time) {
	h.using.Lock()
	defer h.using.Unlock()
	h.live.Tally.Reset(at)
}

// Changes counts the changes of the counts.
func (h *Handle) Changes() uint64 {
	h.using.Lock()
	defer h.using.Unlock()
	return h.live.Tally.changes
}

// stateVersion changes with the form of saved states.
const stateVersion = 1

// saved is a saved Live, without objects: the tracks of another process are other objects.
type saved struct {
	Version int     `json:"version"`
	Tally   Tally   `json:"tally"`
	Events  []Event `json:"events"`
}

// Save returns the counts and the events for the next frame, for Restore in another process. The objects have vanished
// for the restored rules, so that no zone keeps an object for ever.
func (h *Handle) Save(at time.Time) []byte {
	h.using.Lock()
	s := saved{Version: stateVersion, Tally: h.live.Tally.clone(), Events: slices.Clone(h.live.Events)}
	if h.live.Engine != nil {
		next, ending := h.live.Engine.Pending()
		for i := range ending {
			s.Tally.Add(&ending[i], at)
		}
		s.Events = slices.Concat(s.Events, next, ending)
	}
	h.using.Unlock()
	s.Tally.empty() // of a state restored before a frame
	text, err := json.Marshal(&s)
	if err != nil {
		panic(err) // the state has only numbers and texts
	}
	return text
}

// Restore adds a saved state: counts continue, unless Reset was called before. The next frame has the events of the
// objects that have vanished.
func (h *Handle) Restore(text []byte) error {
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("the saved state of the rules: %w", err)
	}
	if s.Version != stateVersion {
		return fmt.Errorf("the saved state of the rules has the version %d: want %d", s.Version, stateVersion)
	}
	for name, r := range s.Tally.Rules {
		if r == nil {
			return fmt.Errorf("the saved state of the rule %q is null", name)
		}
		if r.Classes == nil {
			r.Classes = map[string]*classTally{}
		}
		for class, n := range r.Classes {
			if n == nil {
				return fmt.Errorf("the saved state of the rule %q has the class %q as null", name, class)
			}
		}
	}
	h.using.Lock()
	defer h.using.Unlock()
	h.live.Tally.join(&s.Tally)
	h.live.Events = slices.Concat(s.Events, h.live.Events)
	return nil
}
