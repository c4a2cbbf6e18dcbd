package sources

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/confine"
	"millrace/internal/processors"
	"millrace/internal/routines"
	"millrace/internal/setting"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

// Hub opens sources. Subscriptions to the same source without an end share one Reader,
// so that there is one connection to a camera and one ffmpeg: those with the same
// address, settings and access rights. A source with an end is opened by each
// subscription, which reads it from its beginning. It is safe for concurrent use.
type Hub struct {
	tasks    *routines.Group
	memory   func() *buf.Pool
	device   *video.Hardware
	sandbox  bool
	programs *confine.Programs
	limit    openLimit

	reading atomic.Int64 // sources that are open, or being opened

	mu   sync.Mutex
	open map[string]*shared // by Input.key
}

// NewHub returns a hub whose goroutines are those of tasks. memory returns the pool from
// which frames are leased; device decodes videos, nil = software; sandbox confines ffmpeg, and programs those of
// exec sources, as for video.Options.
func NewHub(tasks *routines.Group, memory func() *buf.Pool, device *video.Hardware, sandbox bool,
	programs *confine.Programs) *Hub {
	return &Hub{tasks: tasks, memory: memory, device: device, sandbox: sandbox, programs: programs,
		limit: newOpenLimit(), open: map[string]*shared{}}
}

// Input says what a subscription reads.
type Input struct {
	Address  string
	Settings Settings // of the kind of the address
	// most frames per second; 0 = all. A shared source is read at the highest rate, and each subscription takes its
	// own.
	FPS        float64
	Loop       bool
	MaxPixels  int  // largest width times height of a video; 0 = no limit
	PublicOnly bool // only public addresses may be used
}

// key identifies what may be shared; "" = the source is not shared.
func (i *Input) key() string {
	scheme, _, err := Classify(i.Address)
	if err != nil || i.Loop || scheme == video.SchemeFile || scheme == schemeFolder {
		return ""
	}
	settings := setting.Filled(i.Settings)
	if v, ok := settings.(*Video); ok {
		v.Transport = v.transport(i.Address) // unset is the same as its default
	}
	text, err := json.Marshal(struct {
		Address    string
		Settings   map[string]any
		PublicOnly bool
	}{i.Address, setting.Of("", settings).Object(), i.PublicOnly})
	if err != nil {
		return ""
	}
	return string(text)
}

// options returns how the source of the input is opened. needs returns the sizes that
// frames are needed in when it is.
func (h *Hub) options(i *Input, fps func() float64, needs func() []video.Need, paced bool) Options {
	return Options{
		Address: i.Address,
		reading: &h.reading,
		May:     func(context.Context) error { return i.Settings.Validate(i.Address, i.PublicOnly) },
		Enter:   h.limit.enter,
		Open: func(ctx context.Context) (Reader, error) {
			env := Env{FPS: fps(), Loop: i.Loop, Needs: needs(), MaxPixels: i.MaxPixels, Memory: h.memory(),
				Hardware: h.device, Sandbox: h.sandbox, Programs: h.programs}
			// Several threads are of use to one file while processors are idle.
			env.OneThread = func() bool { return paced || h.reading.Load() >= int64(processors.Count()) }
			if i.PublicOnly {
				env.Allow = Public
			}
			return Open(ctx, i.Settings, i.Address, env)
		},
	}
}

// Subscription is one reader of a source that others may read too. Run may be called
// once; Status by any goroutine, at any time.
type Subscription struct {
	hub     *Hub
	in      Input
	o       Options       // those of its callbacks, and Paced
	private chan struct{} // closed when the source has an end and is that of another subscription
	broken  chan struct{} // closed when one of its callbacks has panicked, called for a shared source

	mu     sync.Mutex
	status Status  // while nothing is read, and the counts of a shared source
	source *Source // its own, or the shared one; nil before the first and, if it is shared, after the last
	shared bool    // source is a shared one
	before uint64  // restarts of the shared source before the subscription
	last   int64   // slot of the newest frame that was taken and not late, see count
	late   int64   // slot of the newest late one
	due    float64 // of a source with Info.Arrival: when the next frame is due, in µs
	varies bool    // the source has Info.Arrival
	needs  []video.Need
	sizes  *sizes // of the shared source; nil otherwise
}

// Subscribe returns a subscription that does nothing until Run. Of o, only the callbacks
// Frame, Unreadable, Lost, Opened and Failed, and Paced are used. The callbacks of a
// shared source must return at once, as Options.Frame says; the payload of its frames is
// shared and must not be written to.
func (h *Hub) Subscribe(in Input, o Options) *Subscription {
	s := &Subscription{hub: h, in: in, o: o, private: make(chan struct{}), broken: make(chan struct{}),
		status: Status{State: Connecting, Since: time.Now()}, last: math.MinInt64, late: math.MinInt64}
	return s
}

// Run reads the source until it or ctx ends, as Source.Run does.
func (s *Subscription) Run(ctx context.Context) (err error) {
	key := s.in.key()
	if key == "" {
		return s.runAlone(ctx)
	}
	for {
		sh, gone := s.hub.join(key, s)
		switch {
		case gone != nil: // it is being closed: a camera may allow only one connection
			select {
			case <-gone:
				continue
			case <-ctx.Done():
				return s.ended(context.Cause(ctx))
			}
		case sh == nil:
			return s.runAlone(ctx)
		}
		select {
		case <-sh.over:
			s.hub.leave(sh, s)
			select {
			case <-s.private: // at the same time
				return s.runAlone(ctx)
			default:
			}
			return s.ended(sh.err)
		case <-s.private:
			s.hub.leave(sh, s)
			return s.runAlone(ctx)
		case <-s.broken:
			s.hub.leave(sh, s)
			return s.ended(errPanic)
		case <-ctx.Done():
			s.hub.leave(sh, s)
			return s.ended(context.Cause(ctx))
		}
	}
}

// errPanic is the error of a source, or of one of its subscriptions, that panicked.
var errPanic = errors.New("a panic ended the source")

// runAlone reads a source of its own, which continues the counts of a shared one.
func (s *Subscription) runAlone(ctx context.Context) error {
	var source *Source
	o := s.hub.options(&s.in, func() float64 {
		return s.in.FPS
	}, func() []video.Need { return source.Needs() }, s.o.Paced != nil && s.o.Paced())
	o.Frame, o.Unreadable, o.Lost, o.Opened, o.Failed, o.Paced = s.o.Frame, s.o.Unreadable, s.o.Lost, s.o.Opened,
		s.o.Failed, s.o.Paced
	source = New(o)
	s.mu.Lock()
	s.source, s.shared = source, false
	source.status.Frames, source.status.Lost, source.status.Restarts = s.status.Frames, s.status.Lost, s.status.Restarts
	source.Resize(s.needs)
	s.mu.Unlock()
	return source.Run(ctx)
}

// Resize changes the sizes that the subscription needs frames in, as for a Resizer;
// those of a shared source have the size that serves all its subscriptions. It may be
// called by any goroutine, also before Run and by the callbacks.
func (s *Subscription) Resize(needs []video.Need) {
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

// sizes are those that the subscriptions of a shared source need. It has a lock of its
// own, so that callbacks may change them.
type sizes struct {
	source *Source
	mu     sync.Mutex
	of     map[*Subscription][]video.Need
}

// set sets the needs of a subscription. Without any it needs the source's own size.
func (z *sizes) set(s *Subscription, needs []video.Need) {
	if len(needs) == 0 {
		needs = []video.Need{{}}
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.of[s] = needs
	z.apply()
}

// remove removes a subscription. Without subscriptions the size stays.
func (z *sizes) remove(s *Subscription) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.of, s)
	if len(z.of) > 0 {
		z.apply()
	}
}

func (z *sizes) apply() {
	var all []video.Need
	for _, n := range z.of {
		all = append(all, n...)
	}
	z.source.Resize(all)
}

// ended sets the last status. The error is that of Run.
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
	return s.read()
}

// read returns the status of a shared source with the counts of the subscription. s.mu
// is held.
func (s *Subscription) read() Status {
	st := s.source.Status()
	st.Restarts -= s.before
	st.Frames, st.Lost, st.Err, st.Kind = s.status.Frames, s.status.Lost, s.status.Err, s.status.Kind
	if s.in.FPS > 0 && st.Info.FPS > s.in.FPS {
		st.Info.FPS = s.in.FPS
	}
	return st
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

// detach ends the reading of a shared source, and keeps its status.
func (s *Subscription) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared {
		s.status = s.read()
		s.sizes.remove(s)
		s.source, s.shared, s.sizes = nil, false, nil
	}
}

// opened reports an opening.
func (s *Subscription) opened(i Info) {
	s.mu.Lock()
	s.last, s.late, s.due, s.varies = math.MinInt64, math.MinInt64, 0, i.Arrival
	s.mu.Unlock()
	if s.in.FPS > 0 && i.FPS > s.in.FPS {
		i.FPS = s.in.FPS
	}
	if s.o.Opened != nil {
		s.o.Opened(i)
	}
}

// failed reports a failure.
func (s *Subscription) failed(err error) {
	s.mu.Lock()
	s.status.Err, s.status.Kind = err, video.KindOf(err)
	s.mu.Unlock()
	if s.o.Failed != nil {
		s.o.Failed(err)
	}
}

// count counts a frame that is due, and returns its number. fps is the most frames per
// second of the source, 0 for all.
func (s *Subscription) count(fps float64, f *stream.Frame, lost bool) (seq uint64, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.in.FPS == 0 || s.in.FPS == fps:
	case s.varies: // a frame may come half an interval earlier than it is due, as ffmpeg selects them
		interval := 1e6 / s.in.FPS
		if float64(f.CaptureUS) < s.due-interval/2 {
			return 0, false
		}
		s.due = max(float64(f.CaptureUS), s.due) + interval
	default:
		// The first frame in each slot of 1/FPS seconds, as ffmpeg selects them. A late one
		// does not stand for its slot: it may be dropped.
		slot := int64(math.Floor(float64(f.CaptureUS)/1e6*s.in.FPS + 0.01))
		switch {
		case slot <= s.last || f.Late && slot <= s.late:
			return 0, false
		case f.Late:
			s.late = slot
		default:
			s.last = slot
		}
	}
	s.status.Frames++
	if lost {
		s.status.Lost++
	}
	return s.status.Frames - 1, true
}

// shared is a source with its subscriptions.
type shared struct {
	key    string
	source *Source
	sizes  *sizes
	cancel context.CancelFunc
	over   chan struct{} // closed when the source has ended, with err
	err    error
	gone   chan struct{} // closed when another one may be opened in its place

	members int         // subscriptions that have joined and not left; with Hub.mu held, as is closing
	closing bool        // nobody may join any more
	alone   atomic.Bool // the source has an end: only owner, set before alone, gets frames

	mu    sync.Mutex // held while subscriptions are called, unless there is only one
	subs  []*Subscription
	info  *Info         // of the present opening; nil before the first
	fps   float64       // with which the source was opened last
	owner *Subscription // nil also if none of them may have a source with an end
}

// join adds a subscription to the shared source of a key, which is opened if there is
// none. gone is closed when one that is being closed is gone. All results are nil if
// the source has an end.
func (h *Hub) join(key string, s *Subscription) (sh *shared, gone chan struct{}) {
	h.mu.Lock()
	sh = h.open[key]
	switch {
	case sh != nil && sh.closing:
		h.mu.Unlock()
		return nil, sh.gone
	case sh != nil && sh.alone.Load():
		h.mu.Unlock()
		return nil, nil
	case sh != nil:
		sh.members++
		h.mu.Unlock()
		sh.add(s)
		return sh, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	sh = &shared{key: key, cancel: cancel, over: make(chan struct{}), gone: make(chan struct{}), members: 1}
	in := s.in
	o := h.options(&in, sh.rate, func() []video.Need { return sh.source.Needs() }, false)
	o.Frame, o.Unreadable, o.Lost, o.Opened, o.Failed = sh.frame, sh.unreadable, sh.lost, sh.opened, sh.failed
	sh.source = New(o)
	sh.sizes = &sizes{source: sh.source, of: map[*Subscription][]video.Need{}}
	h.open[key] = sh
	h.mu.Unlock()
	sh.add(s)
	err := errPanic
	end := func() {
		cancel()
		h.mu.Lock()
		sh.closing = true
		h.mu.Unlock()
		sh.err = err
		close(sh.over)
	}
	if !h.tasks.Go("source", func() { err = sh.source.Run(ctx); end() }, end) {
		err = stream.Errorf(stream.Draining, "", "the server is shutting down")
		end()
	}
	return sh, nil
}

// leave removes a subscription, which is not called any more once leave has returned.
// After the last one the source is closed.
func (h *Hub) leave(sh *shared, s *Subscription) {
	owner := sh.remove(s)
	h.mu.Lock()
	sh.members--
	last := sh.members == 0
	if owner || last {
		sh.closing = true
	}
	h.mu.Unlock()
	if owner || last {
		sh.cancel()
		<-sh.over
	}
	s.detach()
	if last {
		h.mu.Lock()
		delete(h.open, sh.key)
		h.mu.Unlock()
		close(sh.gone)
	}
}

// add adds a subscription, and opens the source again if that one needs more frames.
func (sh *shared) add(s *Subscription) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.alone.Load() {
		close(s.private)
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

// reopen opens the source again if its subscriptions need more frames. mu is held.
func (sh *shared) reopen() {
	if len(sh.subs) > 0 && sh.tooSlow(sh.need()) {
		sh.source.Reopen()
	}
}

// tooSlow reports whether the source was opened with a lower frame rate than fps, 0 =
// all frames. mu is held.
func (sh *shared) tooSlow(fps float64) bool { return sh.fps != 0 && (fps == 0 || fps > sh.fps) }

// remove removes a subscription, and reports whether the source is its own.
func (sh *shared) remove(s *Subscription) (owner bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.subs = slices.DeleteFunc(sh.subs, func(o *Subscription) bool { return o == s })
	return sh.owner == s
}

// rate returns the frame rate with which the source is opened.
func (sh *shared) rate() float64 {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.fps = sh.need()
	return sh.fps
}

// need returns the frame rate that all subscriptions need, 0 = all frames. mu is held.
func (sh *shared) need() (fps float64) {
	for _, s := range sh.subs {
		if s.in.FPS == 0 {
			return 0
		}
		fps = max(fps, s.in.FPS)
	}
	return fps
}

// opened is called by the source's goroutine, as are the following. Subscriptions may
// have come and gone since its rate was chosen. A source with an end becomes that of the
// first subscription that this rate is enough for; the others open it for themselves. If
// there is none, it is closed.
func (sh *shared) opened(i Info) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.info = &i
	if i.Ends && !sh.alone.Load() {
		for _, s := range sh.subs {
			if sh.owner == nil && !sh.tooSlow(s.in.FPS) {
				sh.owner = s
				continue
			}
			close(s.private)
		}
		if sh.subs = nil; sh.owner != nil {
			sh.subs = []*Subscription{sh.owner}
			sh.source.opts.Paced = sh.owner.o.Paced
		} else {
			sh.cancel()
		}
		sh.alone.Store(true)
	}
	for _, s := range sh.subs {
		sh.call(s, func(s *Subscription) { s.opened(i) })
	}
	if !i.Ends {
		sh.reopen()
	}
}

func (sh *shared) failed(err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.info = nil
	for _, s := range sh.subs {
		sh.call(s, func(s *Subscription) { s.failed(err) })
	}
}

// call calls f for a subscription. A panic ends that subscription only, unless the source
// has an end and is its own. mu is held.
func (sh *shared) call(s *Subscription, f func(*Subscription)) {
	if !sh.alone.Load() {
		defer func() {
			if v := recover(); v != nil {
				s.hub.tasks.Recovered("source", v)
				sh.subs = slices.DeleteFunc(slices.Clone(sh.subs), func(o *Subscription) bool { return o == s })
				close(s.broken)
			}
		}()
	}
	f(s)
}

// each calls f for each subscription. The only one of a source with an end may block.
func (sh *shared) each(f func(*Subscription)) {
	if sh.alone.Load() {
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
		if seq, due := s.count(sh.fps, &f, false); due {
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
		if seq, due := s.count(sh.fps, &f, false); due && s.o.Unreadable != nil {
			own := f
			own.Seq = seq
			s.o.Unreadable(own, err)
		}
	})
}

func (sh *shared) lost(f stream.Frame) {
	sh.each(func(s *Subscription) {
		if seq, due := s.count(sh.fps, &f, true); due && s.o.Lost != nil {
			own := f
			own.Seq = seq
			s.o.Lost(own)
		}
	})
}
