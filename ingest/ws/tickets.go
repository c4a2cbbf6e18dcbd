package ws

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/stream"
)

// The bounds of tickets.
const (
	ticketTime = 30 * time.Second
	maxTickets = 10000
	maxOfOne   = 256 // of one client
)

// tickets authenticate a browser's WebSocket, which cannot send a header: a page
// requests a ticket over REST, where it is authenticated, and uses it once.
type tickets struct {
	mu    sync.Mutex
	valid map[[sha256.Size]byte]ticket // by the hash of its text
	of    map[*access.Account]int      // how many each client has
	first time.Time                    // none expires before
}

// ticket is one that was not used.
type ticket struct {
	until time.Time
	of    *ingest.Client // who asked for it
}

// mint returns a new ticket of a client.
func (t *tickets) mint(of *ingest.Client, now time.Time) (string, error) {
	by := of.Account()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.valid) >= maxTickets || t.of[by] >= maxOfOne {
		t.removeExpired(now)
	}
	if t.of[by] >= maxOfOne {
		return "", stream.Errorf(stream.FlowControl, "", "%d tickets of this client are valid already: use those, or wait until they expire", maxOfOne)
	}
	if len(t.valid) >= maxTickets {
		return "", stream.Errorf(stream.Overloaded, "", "%d tickets are valid already: use those, or wait until they expire", len(t.valid))
	}
	if t.valid == nil {
		t.valid, t.of = map[[sha256.Size]byte]ticket{}, map[*access.Account]int{}
	}
	text := rand.Text()
	t.valid[sha256.Sum256([]byte(text))] = ticket{now.Add(ticketTime), of}
	t.of[by]++
	return text, nil
}

// removeExpired is called with mu. It looks at the tickets only when one may have expired: requests that are refused cost little.
func (t *tickets) removeExpired(now time.Time) {
	if !now.After(t.first) {
		return
	}
	t.first = now.Add(ticketTime) // that of the next one at the earliest
	for k, one := range t.valid {
		switch {
		case now.After(one.until):
			t.remove(k, one)
		case one.until.Before(t.first):
			t.first = one.until
		}
	}
}

// take returns whose a ticket is and whether it is valid, and uses it up.
func (t *tickets) take(text string, now time.Time) (*ingest.Client, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := sha256.Sum256([]byte(text))
	one, ok := t.valid[k]
	if ok {
		t.remove(k, one)
	}
	if !ok || !now.Before(one.until) {
		return nil, false
	}
	return one.of, true
}

// remove is called with mu.
func (t *tickets) remove(k [sha256.Size]byte, one ticket) {
	delete(t.valid, k)
	by := one.of.Account()
	if t.of[by]--; t.of[by] == 0 {
		delete(t.of, by)
	}
}
