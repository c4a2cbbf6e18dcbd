package sources

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"millrace/internal/video"
	"millrace/stream"
)

// The invariants of a shared source:
//
//   - mu is held while subscriptions are called: after remove, the source does not call the subscription. The owner is
//     called without mu, since its callbacks may block; unsubscribe of the owner waits for over instead.
//   - exclusive is set once, by the source's goroutine, for a source with an end. From then on subs has at most the
//     owner, and add refuses subscriptions.
//   - Once exclusive is set, owner is constant and only the source's goroutine changes fps: the source's goroutine
//     reads both without mu.
//   - A panic of a subscription ends that subscription alone, and a panic of the owner ends the source.

// shared is a source with its subscriptions.
type shared struct {
	source    *Source
	sizes     *sizes
	cancel    context.CancelFunc
	recovered func(string, any) // reports a panic of a callback
	ended     chan struct{}     // closed when the source has ended, with err
	err       error

	exclusive atomic.Bool // the source has an end: only the owner gets frames

	mu    sync.Mutex
	subs  []*Subscription
	info  *Info         // of the present opening; nil before the first opening
	fps   float64       // of the last opening
	packs bool          // the last opening has packets
	owner *Subscription // of a source with an end; nil for none
}

// newShared returns a shared source for an input. cancel ends the source.
func newShared(h *Hub, in Input, cancel context.CancelFunc) *shared {
	sh := &shared{cancel: cancel, recovered: h.tasks.Recovered, ended: make(chan struct{})}
	o := h.options(&in, sh.rate, func() []video.TargetSize { return sh.source.Needs() }, sh.packets, false)
	o.Frame, o.Unreadable, o.Lost, o.Opened, o.Failed = sh.frame, sh.unreadable, sh.lost, sh.opened, sh.failed
	o.Skipped = func(n uint64) { sh.each(func(s *Subscription) { s.countSkipped(n) }) }
	sh.source = New(o)
	sh.sizes = newSizes(sh.source)
	return sh
}

// end reports the end of the source.
func (sh *shared) end(err error) {
	sh.err = err
	close(sh.ended)
}

// add adds a subscription, and reopens the source for a subscription with a higher rate, or for the first with packets.
func (sh *shared) add(s *Subscription) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.exclusive.Load() {
		s.usePrivate()
		return
	}
	sh.subs = append(sh.subs, s)
	sh.call(s, func(s *Subscription) {
		s.attach(sh.source, sh.sizes)
		if sh.info != nil {
			s.opened(*sh.info)
		}
	})
	if sh.info != nil {
		sh.reopen()
	}
}

// reopen reopens the source when the subscriptions need a higher rate or packets. mu is held. A source whose packets
// are no longer needed is not reopened, because a second opening may disturb the other subscriptions.
func (sh *shared) reopen() {
	if len(sh.subs) > 0 && (sh.tooSlow(sh.need()) || !sh.packs && sh.wantsPackets()) {
		sh.source.Reopen()
	}
}

// tooSlow reports whether the source was opened with a lower frame rate than fps, 0 = all frames. mu is held.
func (sh *shared) tooSlow(fps float64) bool { return sh.fps != 0 && (fps == 0 || fps > sh.fps) }

// remove removes a subscription, and reports whether the subscription is the owner.
func (sh *shared) remove(s *Subscription) (owner bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.subs = withoutSubscription(sh.subs, s)
	return sh.owner == s
}

// withoutSubscription returns new subscriptions without s: a loop over subs may go on.
func withoutSubscription(subs []*Subscription, s *Subscription) []*Subscription {
	return slices.DeleteFunc(slices.Clone(subs), func(o *Subscription) bool { return o == s })
}

// rate returns the frame rate for an opening of the source.
func (sh *shared) rate() float64 {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.fps = sh.need()
	return sh.fps
}

// packets returns who receives the packets of an opening of the source, or nil.
func (sh *shared) packets() func(Fragment) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.packs = sh.wantsPackets(); !sh.packs {
		return nil
	}
	return func(p Fragment) {
		sh.each(func(s *Subscription) {
			if s.o.Packet != nil {
				s.o.Packet(p)
			}
		})
	}
}

// wantsPackets reports whether a subscription has use for packets. mu is held.
func (sh *shared) wantsPackets() bool {
	return slices.ContainsFunc(sh.subs, func(s *Subscription) bool { return s.o.Packet != nil })
}

// need returns the frame rate for all subscriptions, 0 = all frames. mu is held.
func (sh *shared) need() (fps float64) {
	for _, s := range sh.subs {
		if s.in.FPS == 0 {
			return 0
		}
		fps = max(fps, s.in.FPS)
	}
	return fps
}

// opened is called by the source's goroutine, as are the methods below. Subscriptions may have joined and left since
// the choice of the rate. A source with an end gets an owner: the first subscription with a rate up to the source's.
// The other subscriptions open private sources. Without an owner, the source is closed.
func (sh *shared) opened(i Info) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.info = &i
	if i.Ends && !sh.exclusive.Load() {
		sh.choose()
	}
	for _, s := range sh.subs {
		sh.call(s, func(s *Subscription) { s.opened(i) })
	}
	if !i.Ends {
		sh.reopen()
	}
}

// choose chooses the owner of a source with an end. mu is held.
func (sh *shared) choose() {
	for _, s := range sh.subs {
		if sh.owner == nil && !sh.tooSlow(s.in.FPS) && (sh.packs || s.o.Packet == nil) {
			sh.owner = s
			continue
		}
		s.usePrivate()
	}
	if sh.subs = nil; sh.owner != nil {
		sh.subs = []*Subscription{sh.owner}
		sh.source.setPaced(sh.owner.o.Paced)
	} else {
		sh.cancel()
	}
	sh.exclusive.Store(true)
}

func (sh *shared) failed(err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.info = nil
	for _, s := range sh.subs {
		sh.call(s, func(s *Subscription) { s.failed(err) })
	}
}

// call calls f for a subscription, and recovers from a panic, the owner's panics excepted. mu is held, unless s is the
// owner.
func (sh *shared) call(s *Subscription, f func(*Subscription)) {
	if !sh.exclusive.Load() {
		defer func() {
			if v := recover(); v != nil {
				sh.recovered("source", v)
				sh.subs = withoutSubscription(sh.subs, s)
				s.breakOff()
			}
		}()
	}
	f(s)
}

// each calls f for each subscription. The callbacks of the owner may block.
func (sh *shared) each(f func(*Subscription)) {
	if sh.exclusive.Load() {
		if sh.owner != nil {
			f(sh.owner)
		}
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, s := range sh.subs {
		sh.call(s, f)
	}
}

func (sh *shared) frame(f stream.Frame) {
	sh.each(func(s *Subscription) {
		if seq, picked := s.count(sh.fps, &f, false); picked {
			own := f
			own.Seq = seq
			own.Lease.Retain()
			give(s.o.Frame, own)
		}
	})
	f.Lease.Release()
}

func (sh *shared) unreadable(f stream.Frame, err error) {
	sh.each(func(s *Subscription) {
		if seq, picked := s.count(sh.fps, &f, false); picked && s.o.Unreadable != nil {
			own := f
			own.Seq = seq
			s.o.Unreadable(own, err)
		}
	})
}

func (sh *shared) lost(f stream.Frame) {
	sh.each(func(s *Subscription) {
		if seq, picked := s.count(sh.fps, &f, true); picked && s.o.Lost != nil {
			own := f
			own.Seq = seq
			s.o.Lost(own)
		}
	})
}
