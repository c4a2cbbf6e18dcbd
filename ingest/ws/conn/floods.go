package conn

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"millrace/ingest/access"
	"millrace/stream"
)

// Client is an account at an address. (A key or user has the same account at every address.) Including the address
// limits a refusal to one of many cameras with the same key.
type Client struct {
	Account *access.Account // the connection is a session of this account
	Address netip.Addr
}

// The bounds of floods. After the first flood of a client its connections are refused for firstWait; each further
// flood doubles the time.
const (
	firstWait   = time.Second
	longestWait = 64 * time.Second
	leastQuiet  = time.Minute
	maxFloods   = 4096 // most clients remembered
)

// floods remembers the clients whose connections ended because of too many pings or text messages, and the clients
// that have used much of their bursts: a new connection must not start with full bursts. floods is safe for
// concurrent use.
type floods struct {
	mu    sync.Mutex
	of    map[Client]*list.Element
	queue list.List // of *floodEntry, longest quiet first
}

// floodEntry is a remembered client.
type floodEntry struct {
	by    Client
	last  time.Time     // of the last note or keep
	wait  time.Duration // how long connections are refused after the last flood; 0 = no flood
	until time.Time     // end of wait
	used  burstUse      // by ended connections
}

// past reports whether the client has been quiet for long enough to be forgotten.
func (f *floodEntry) past(now time.Time) bool { return now.Sub(f.last) >= max(2*f.wait, leastQuiet) }

// note records a flood of a client, and returns how long its connections are refused.
func (f *floods) note(by Client, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.entryOf(by, now)
	one.wait = min(max(2*one.wait, firstWait), longestWait)
	one.until = now.Add(one.wait)
	return one.wait
}

// keep stores the used bursts of an ending connection for the client's next connection. After several connections,
// the largest use counts.
func (f *floods) keep(by Client, used burstUse, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := &f.entryOf(by, now).used
	kept.update(now)
	kept.pings.Used = max(kept.pings.Used, used.pings.Used)
	kept.texts.Used = max(kept.texts.Used, used.texts.Used)
}

// used returns the used bursts with which a new connection of a client begins.
func (f *floods) used(of Client) burstUse {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.of[of]; e != nil {
		return e.Value.(*floodEntry).used
	}
	return burstUse{}
}

// entryOf returns the entry of a client, with last = now. A client quiet for long enough gets a new entry. The caller
// holds mu.
func (f *floods) entryOf(by Client, now time.Time) *floodEntry {
	one := &floodEntry{by: by}
	if e := f.of[by]; e != nil {
		if last := f.remove(e); !last.past(now) {
			one = last
		}
	}
	for e := f.queue.Front(); e != nil && (f.queue.Len() >= maxFloods ||
		e.Value.(*floodEntry).past(now)); e = f.queue.Front() {
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
func (f *floods) remove(e *list.Element) *floodEntry {
	one := f.queue.Remove(e).(*floodEntry)
	delete(f.of, one.by)
	return one
}

// check returns the error for another connection of a client now, or nil when no wait is in force.
func (f *floods) check(of Client, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.of[of]
	if e == nil {
		return nil
	}
	left := e.Value.(*floodEntry).until.Sub(now)
	if left <= 0 {
		return nil
	}
	err := stream.Errorf(stream.FlowControl, "",
		"a connection of this client had too many pings or text messages: connect again in %v, and send fewer",
		left.Round(time.Millisecond))
	err.After = left
	return err
}
