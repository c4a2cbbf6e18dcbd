package sources

import (
	"context"
	"errors"
	"sync"
	"time"

	"millrace/internal/video"
	"millrace/stream"
)

// The invariants of a subscription:
//
//   - Run's goroutine alone joins and leaves a shared source, and replaces a shared source by a private one.
//   - Status sees one source at a time: attach, detach and runAlone change source, shared and sizes together.
//   - The counts never fall: detach keeps the counts of the shared source, and a private source continues them.
//   - mu is held during no callback of Options. Locks of sizes and Source may be taken while mu is held.

// Subscription reads a source, private or shared with other subscriptions. Run may be called once; any goroutine may
// call Status and Resize at any time.
type Subscription struct {
	hub     *Hub
	in      Input
	o       Options       // Paced and the callbacks
	private chan struct{} // closed by usePrivate
	broken  chan struct{} // closed by breakOff

	mu     sync.Mutex
	status Status  // while nothing is read, and the counts of a shared source
	source *Source // private or shared; nil before the first source, and after detach
	shared bool    // source is shared
	before uint64  // restarts of the shared source before the subscription
	picker picker  // of a shared source
	needs  []video.TargetSize
	sizes  *sizes // of the shared source; nil otherwise
}

// Run reads the source until the end of the source or of ctx, as Source.Run.
func (s *Subscription) Run(ctx context.Context) (err error) {
	key := s.in.key()
	if key == "" {
		return s.runAlone(ctx)
	}
	for {
		e, gone := s.hub.join(key, s)
		switch {
		case gone != nil:
			select {
			case <-gone:
				continue
			case <-ctx.Done():
				return s.ended(context.Cause(ctx))
			}
		case e == nil:
			return s.runAlone(ctx)
		}
		select {
		case <-e.ended:
			s.hub.unsubscribe(e, s)
			select {
			case <-s.private: // at the same time
				return s.runAlone(ctx)
			default:
			}
			return s.ended(e.err)
		case <-s.private:
			s.hub.unsubscribe(e, s)
			return s.runAlone(ctx)
		case <-s.broken:
			s.hub.unsubscribe(e, s)
			return s.ended(errPanic)
		case <-ctx.Done():
			s.hub.unsubscribe(e, s)
			return s.ended(context.Cause(ctx))
		}
	}
}

// errPanic is the error of a source or a subscription after a panic.
var errPanic = errors.New("a panic ended the source")

// usePrivate tells Run to open a private source: the shared source has an end, and another subscription as owner.
func (s *Subscription) usePrivate() { close(s.private) }

// breakOff tells Run to end: a callback panicked while the shared source called the subscription.
func (s *Subscription) breakOff() { close(s.broken) }

// runAlone reads a private source. The private source continues the counts of a shared source.
func (s *Subscription) runAlone(ctx context.Context) error {
	var source *Source
	o := s.hub.options(&s.in, func() float64 { return s.in.FPS },
		func() []video.TargetSize { return source.Needs() }, func() func(Fragment) { return s.o.Packet },
		s.o.Paced != nil && s.o.Paced())
	o.Frame, o.Unreadable, o.Lost, o.Opened, o.Failed, o.Paced = s.o.Frame, s.o.Unreadable, s.o.Lost, s.o.Opened,
		s.o.Failed, s.o.Paced
	s.mu.Lock()
	o.frames, o.lost, o.skipped, o.restarts = s.status.Frames, s.status.Lost, s.status.Skipped, s.status.Restarts
	source = New(o)
	source.Resize(s.needs)
	s.source, s.shared = source, false
	s.mu.Unlock()
	return source.Run(ctx)
}

// Resize changes the needed frame sizes, as for a Resizer. The frames of a shared source have a size for the needs of
// all subscriptions. Any goroutine may call Resize, also before Run and in a callback.
func (s *Subscription) Resize(needs []video.TargetSize) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needs = needs
	switch {
	case s.sizes != nil:
		s.sizes.set(s, needs)
	case s.source != nil:
		s.source.Resize(needs)
	}
}

// ended sets the last status, and returns err for Run.
func (s *Subscription) ended(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == errPanic {
		s.status.State, s.status.Err, s.status.Kind = Failed, err, ""
	}
	if s.status.State != Failed {
		s.status.State, s.status.Since, s.status.Retry = Ended, time.Now(), time.Time{}
	}
	return err
}

// Status returns a snapshot of the source's state, with the counts of the subscription.
func (s *Subscription) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.source == nil:
		return s.status
	case !s.shared:
		return s.source.Status()
	}
	return s.sharedStatus()
}

// sharedStatus returns the status of a shared source with the counts of the subscription. mu is held.
func (s *Subscription) sharedStatus() Status {
	st := s.source.Status()
	st.Restarts -= s.before
	st.Frames, st.Lost, st.Skipped = s.status.Frames, s.status.Lost, s.status.Skipped
	st.Err, st.Kind = s.status.Err, s.status.Kind
	st.Info = s.info(st.Info)
	return st
}

// info returns the info of a shared source at the rate of the subscription.
func (s *Subscription) info(i Info) Info {
	if s.in.FPS > 0 && i.FPS > s.in.FPS {
		i.FPS = s.in.FPS
	}
	return i
}

// attach begins to read a shared source.
func (s *Subscription) attach(source *Source, z *sizes) {
	st := source.Status()
	s.mu.Lock()
	s.source, s.shared, s.before, s.sizes = source, true, st.Restarts, z
	z.set(s, s.needs)
	if st.State != Waiting && st.State != Connecting {
		st.Err = nil // a failure that is over
	}
	s.status.Err, s.status.Kind = st.Err, video.KindOf(st.Err)
	s.mu.Unlock()
	if st.Err != nil && s.o.Failed != nil {
		s.o.Failed(st.Err)
	}
}

// detach ends the reading of a shared source, and keeps the status.
func (s *Subscription) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared {
		s.status = s.sharedStatus()
		s.sizes.remove(s)
		s.source, s.shared, s.sizes = nil, false, nil
	}
}

// opened reports an opening of a shared source.
func (s *Subscription) opened(i Info) {
	s.mu.Lock()
	s.picker.restart(i.Arrival)
	s.mu.Unlock()
	if s.o.Opened != nil {
		s.o.Opened(s.info(i))
	}
}

// failed reports a failure of a shared source.
func (s *Subscription) failed(err error) {
	s.mu.Lock()
	s.status.Err, s.status.Kind = err, video.KindOf(err)
	s.mu.Unlock()
	if s.o.Failed != nil {
		s.o.Failed(err)
	}
}

// count counts a picked frame of a shared source, and returns the frame's number. fps is the most frames per second
// of the source, 0 for all.
func (s *Subscription) count(fps float64, f *stream.Frame, lost bool) (seq uint64, picked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.picker.pick(fps, f) {
		return 0, false
	}
	s.status.Frames++
	if lost {
		s.status.Lost++
	}
	return s.status.Frames - 1, true
}

// countSkipped counts pictures of a shared source that became no frame.
func (s *Subscription) countSkipped(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Skipped += n
}
