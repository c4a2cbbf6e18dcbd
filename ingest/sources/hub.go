package sources

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/confine"
	"millrace/internal/processors"
	"millrace/internal/routines"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

// The invariants of the hub:
//
//   - Hub.open has at most one entry for a key, and an entry's source runs at most once. A key's next source opens
//     after the present source has ended (entry.gone): a camera may allow only one connection.
//   - entry.members counts the subscriptions between join and unsubscribe. unsubscribe of the last member closes
//     the entry;
//     a closing entry admits no member.
//   - Hub.mu guards open, and the members and closing of each entry, and is held without any other lock.
//
// The order of the package's other locks is shared.mu, Subscription.mu, sizes.mu, Source.mu.

// Hub opens sources. Subscriptions with the same address, settings and access rights share one Reader of a source
// without an end: the server has one connection to a camera and one ffmpeg. A source with an end is opened for each
// subscription and read from the beginning. A Hub is safe for concurrent use.
type Hub struct {
	tasks    *routines.Group
	memory   func() *buf.Pool
	device   *video.Hardware
	sandbox  bool
	programs *confine.Programs
	limit    openLimit

	openings atomic.Uint64
	reading  atomic.Int64 // sources that are open, or being opened

	mu   sync.Mutex
	open map[string]*entry // by Input.key
}

// entry is a shared source in the hub.
type entry struct {
	*shared
	key     string
	gone    chan struct{} // closed when the key's next source may be opened
	members int           // subscriptions between join and leave; Hub.mu is held, as for closing
	closing bool          // no subscription may join
}

// NewHub returns a hub with the goroutines of tasks. memory returns the pool for leases of frames; device decodes
// videos, nil = software; sandbox confines ffmpeg, and programs confines the programs of exec sources, as in
// video.Options.
func NewHub(tasks *routines.Group, memory func() *buf.Pool, device *video.Hardware, sandbox bool,
	programs *confine.Programs) *Hub {
	return &Hub{tasks: tasks, memory: memory, device: device, sandbox: sandbox, programs: programs,
		limit: newOpenLimit(), open: map[string]*entry{}}
}

// Subscribe returns a subscription, idle until Run. Of o, the subscription uses only Paced and the callbacks Frame,
// Unreadable, Lost, Opened, Failed and Packet. The callbacks of a shared source must return at once, as in
// Options.Frame.
// The frames of a shared source have a shared payload: the payload must not be written to.
func (h *Hub) Subscribe(in Input, o Options) *Subscription {
	return &Subscription{hub: h, in: in, o: o, private: make(chan struct{}), broken: make(chan struct{}),
		status: Status{State: Connecting, Since: time.Now()}, picker: newPicker(in.FPS)}
}

// options returns the options of an input's source. At each opening, fps returns the rate, needs the sizes of the
// frames, and packets who receives packets.
func (h *Hub) options(i *Input, fps func() float64, needs func() []video.TargetSize, packets func() func(Fragment),
	paced bool) Options {
	return Options{
		Address: i.Address,
		reading: &h.reading,
		Allow:   func(context.Context) error { return i.Settings.Validate(i.Address, i.PublicOnly) },
		Enter:   h.limit.enter,
		Open: func(ctx context.Context) (Reader, error) {
			env := Env{FPS: fps(), Loop: i.Loop, Needs: needs(), MaxPixels: i.MaxPixels, Memory: h.memory(),
				Hardware: h.device, Sandbox: h.sandbox, Programs: h.programs}
			// Several threads are of use to one file while processors are idle.
			env.OneThread = func() bool { return paced || h.reading.Load() >= int64(processors.Count()) }
			if to := packets(); to != nil {
				n := h.openings.Add(1)
				env.Packets = func(p video.Fragment) {
					defer func() {
						if v := recover(); v != nil {
							h.tasks.Recovered("packets", v)
						}
					}()
					to(Fragment{p, n})
				}
			}
			if i.PublicOnly {
				env.Allow = Public
			}
			return Open(ctx, i.Settings, i.Address, env)
		},
	}
}

// join adds a subscription to the shared source of a key, and opens a source for a key without a source. While the
// present source closes, join returns gone instead: the caller waits for gone and joins again. Both results are nil
// for a source with an end.
func (h *Hub) join(key string, s *Subscription) (e *entry, gone chan struct{}) {
	h.mu.Lock()
	e = h.open[key]
	switch {
	case e != nil && e.closing:
		h.mu.Unlock()
		return nil, e.gone
	case e != nil && e.exclusive.Load():
		h.mu.Unlock()
		return nil, nil
	case e != nil:
		e.members++
		h.mu.Unlock()
		e.add(s)
		return e, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	e = &entry{shared: newShared(h, s.in, cancel), key: key, gone: make(chan struct{}), members: 1}
	h.open[key] = e
	h.mu.Unlock()
	e.add(s)
	err := errPanic
	end := func() {
		cancel()
		h.mu.Lock()
		e.closing = true
		h.mu.Unlock()
		e.end(err)
	}
	if !h.tasks.Go("source", func() { err = e.source.Run(ctx); end() }, end) {
		err = stream.Errorf(stream.Draining, "", "the server is shutting down")
		end()
	}
	return e, nil
}

// unsubscribe removes a subscription. After unsubscribe, the source does not call the subscription again. The last
// unsubscribe closes the source, and so does the unsubscribe of the owner.
func (h *Hub) unsubscribe(e *entry, s *Subscription) {
	owner := e.remove(s)
	h.mu.Lock()
	e.members--
	last := e.members == 0
	if owner || last {
		e.closing = true
	}
	h.mu.Unlock()
	if owner || last {
		e.cancel()
		<-e.ended
	}
	s.detach()
	if last {
		h.mu.Lock()
		delete(h.open, e.key)
		h.mu.Unlock()
		close(e.gone)
	}
}
