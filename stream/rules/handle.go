package rules

import "sync/atomic"

// Handle connects the owner of a stream to the stage that applies its rules: the owner may change the rules while the
// stream runs, and the state of the rules outlives workers and streams. A nil Handle has no rules.
type Handle struct {
	rules atomic.Pointer[Rules]
	saved atomic.Pointer[[]byte]
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

// Set changes the rules from the stream's next frame on.
func (h *Handle) Set(r *Rules) {
	if r.Empty() {
		r = nil
	}
	h.rules.Store(r)
}

// Keep keeps the state of the rules for the next worker.
func (h *Handle) Keep(saved []byte) { h.saved.Store(&saved) }

// Kept returns the state of the rules, or nil.
func (h *Handle) Kept() []byte {
	if p := h.saved.Load(); p != nil {
		return *p
	}
	return nil
}
