package access

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	"millrace/stream"
)

// Bounds of tickets.
const (
	TicketTime      = 30 * time.Second // how long a ticket is valid
	maxTickets      = 10000
	maxTicketsOfOne = 256 // per client
)

// Tickets authenticate the WebSocket of a browser, because a browser's WebSocket cannot send a header. An
// authenticated page requests a ticket, and uses the ticket once. Tickets is safe for concurrent use.
type Tickets struct {
	mu    sync.Mutex
	valid map[[sha256.Size]byte]ticket // by the hash of the ticket's text
	of    map[*Account]int             // how many each client has
	first time.Time                    // no ticket expires before
}

// ticket is an unused ticket.
type ticket struct {
	until     time.Time
	principal *Principal // owner of the ticket; nil = clients need no credentials
	account   *Account
}

// Issue returns the text of a new ticket of a client: a principal, if clients need credentials, and an account.
// Errors: FlowControl, Overloaded.
func (t *Tickets) Issue(of *Principal, by *Account, now time.Time) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.valid) >= maxTickets || t.of[by] >= maxTicketsOfOne {
		t.removeExpired(now)
	}
	if t.of[by] >= maxTicketsOfOne {
		return "", stream.Errorf(stream.FlowControl, "",
			"%d tickets of this client are valid already: use those, or wait until they expire", maxTicketsOfOne)
	}
	if len(t.valid) >= maxTickets {
		return "", stream.Errorf(stream.Overloaded, "",
			"%d tickets are valid already: use those, or wait until they expire", len(t.valid))
	}
	if t.valid == nil {
		t.valid, t.of = map[[sha256.Size]byte]ticket{}, map[*Account]int{}
	}
	text := rand.Text()
	t.valid[sha256.Sum256([]byte(text))] = ticket{now.Add(TicketTime), of, by}
	t.of[by]++
	return text, nil
}

// The caller of removeExpired holds mu. removeExpired examines the tickets only when a ticket may have expired:
// refused requests cost little.
func (t *Tickets) removeExpired(now time.Time) {
	if !now.After(t.first) {
		return
	}
	t.first = now.Add(TicketTime) // the earliest expiry of a later ticket
	for k, one := range t.valid {
		switch {
		case now.After(one.until):
			t.remove(k, one)
		case one.until.Before(t.first):
			t.first = one.until
		}
	}
}

// Take uses a ticket up. Take returns the client of the ticket, and whether the ticket was valid.
func (t *Tickets) Take(text string, now time.Time) (of *Principal, by *Account, valid bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := sha256.Sum256([]byte(text))
	one, ok := t.valid[k]
	if ok {
		t.remove(k, one)
	}
	if !ok || !now.Before(one.until) {
		return nil, nil, false
	}
	return one.principal, one.account, true
}

// remove is called with mu.
func (t *Tickets) remove(k [sha256.Size]byte, one ticket) {
	delete(t.valid, k)
	if t.of[one.account]--; t.of[one.account] == 0 {
		delete(t.of, one.account)
	}
}
