package conn

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"millrace/ingest/access"
	"millrace/stream"
)

// Client is whose a connection is: an account, which a key or user has wherever it comes from, at an address. So one of many
// cameras that share a key does not have the others refused.
type Client struct {
	Account *access.Account // of which the connection is a session
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

// floods has the clients whose connections were ended because of too many pings or text messages, or have used much of what they
// may, all of which they could otherwise send again at once over another connection. It is safe for concurrent use.
type floods struct {
	mu    sync.Mutex
	of    map[Client]*list.Element
	queue list.List // of *flooder, the one that has been quiet for longest first
}

// flooder is such a client.
type flooder struct {
	by    Client
	last  time.Time     // when it was noted last
	wait  time.Duration // for which connections are refused after the last flood; 0 = there was none
	until time.Time     // when that ends
	used  bursts        // by its connections that have ended
}

// past reports whether the client has been quiet for long enough to be forgotten.
func (f *flooder) past(now time.Time) bool { return now.Sub(f.last) >= max(2*f.wait, leastQuiet) }

// note notes a flood of a client, and returns for how long its connections are refused.
func (f *floods) note(by Client, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.at(by, now)
	one.wait = min(max(2*one.wait, firstWait), longestWait)
	one.until = now.Add(one.wait)
	return one.wait
}

// keep keeps what a connection of a client that ends has used by now, for its next one. Of several that end, the most counts.
func (f *floods) keep(by Client, used bursts, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := &f.at(by, now).used
	kept.update(now)
	kept.pings.Used = max(kept.pings.Used, used.pings.Used)
	kept.texts.Used = max(kept.texts.Used, used.texts.Used)
}

// used returns what a new connection of a client goes on with.
func (f *floods) used(of Client) bursts {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.of[of]; e != nil {
		return e.Value.(*flooder).used
	}
	return bursts{}
}

// at returns the entry of a client that is noted now, which is a new one if the client was quiet for long enough. It is called with mu.
func (f *floods) at(by Client, now time.Time) *flooder {
	one := &flooder{by: by}
	if e := f.of[by]; e != nil {
		if last := f.remove(e); !last.past(now) {
			one = last
		}
	}
	for e := f.queue.Front(); e != nil && (f.queue.Len() >= maxFloods || e.Value.(*flooder).past(now)); e = f.queue.Front() {
		f.remove(e)
	}
	if f.of == nil {
		f.of = map[Client]*list.Element{}
	}
	one.last = now
	f.of[by] = f.queue.PushBack(one)
	return one
}

// remove is called with mu.
func (f *floods) remove(e *list.Element) *flooder {
	one := f.queue.Remove(e).(*flooder)
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
	left := e.Value.(*flooder).until.Sub(now)
	if left <= 0 {
		return nil
	}
	err := stream.Errorf(stream.FlowControl, "", "a connection of this client had too many pings or text messages: connect again in %v, and send fewer", left.Round(time.Millisecond))
	err.After = left
	return err
}
