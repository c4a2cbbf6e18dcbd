package rules

import (
	"sync"
	"sync/atomic"
)

// Handle connects the owner of a stream to the stage that applies its rules: the owner may change the rules while the
// stream runs, and the state of the rules outlives workers and streams. A nil Handle has no rules.
type Handle struct {
	rules atomic.Pointer[Rules]

	using sync.Mutex
	state any // under using
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

// Use calls f with the state of the rules, nil at first, and keeps the state that f returns. The calls of f run one
// after another, also for frames of several workers or streams.
func (h *Handle) Use(f func(state any) any) {
	h.using.Lock()
	defer h.using.Unlock()
	h.state = f(h.state)
}
