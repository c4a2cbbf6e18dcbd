package conn

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"millrace/ingest"
	"millrace/stream"
)

// Client is whose a connection is: an account, which a key or user has wherever it comes from, at an address. So one of many
// cameras that share a key does not have the others refused.
type Client struct {
	Account *ingest.Account // of which the connection is a session
	Address netip.Addr
}

// The bounds of floods. After the first flood of a client its connections are refused for firstWait, and twice as long after each
// further one.
const (
	firstWait   = time.Second
	longestWait = 64 * time.Second
	leastQuiet  = time.Minute
	maxFloods   = 4096 // clients that are remembered
)

// floods has the clients whose connections were ended because of too many pings or text messages, which they could otherwise send
// again at once over another connection. It is safe for concurrent use.
type floods struct {
	mu    sync.Mutex
	of    map[Client]*list.Element
	queue list.List // of *flood, the oldest first
}

// flood is the last one of a client.
type flood struct {
	by   Client
	at   time.Time
	wait time.Duration // for which connections are refused
}

// past reports whether the client has been quiet for long enough to be forgotten.
func (f *flood) past(now time.Time) bool { return now.Sub(f.at) >= max(2*f.wait, leastQuiet) }

// note notes a flood of a client, and returns for how long its connections are refused.
func (f *floods) note(by Client, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait := firstWait
	if e := f.of[by]; e != nil {
		if last := f.remove(e); !last.past(now) {
			wait = min(2*last.wait, longestWait)
		}
	}
	for e := f.queue.Front(); e != nil && (f.queue.Len() >= maxFloods || e.Value.(*flood).past(now)); e = f.queue.Front() {
		f.remove(e)
	}
	if f.of == nil {
		f.of = map[Client]*list.Element{}
	}
	f.of[by] = f.queue.PushBack(&flood{by, now, wait})
	return wait
}

// remove is called with mu.
func (f *floods) remove(e *list.Element) *flood {
	one := f.queue.Remove(e).(*flood)
	delete(f.of, one.by)
	return one
}

// check returns the error with which another connection of a client is refused now, or nil.
func (f *floods) check(of Client, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.of[of]
	if e == nil {
		return nil
	}
	last := e.Value.(*flood)
	left := last.wait - now.Sub(last.at)
	if left <= 0 {
		return nil
	}
	err := stream.Errorf(stream.FlowControl, "", "a connection of this client had too many pings or text messages: connect again in %v, and send fewer", left.Round(time.Millisecond))
	err.After = left
	return err
}
