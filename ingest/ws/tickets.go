package ws

import (
	"crypto/rand"
	"sync"
	"time"

	"millrace/stream"
)

// The bounds of tickets.
const (
	ticketTime = 30 * time.Second
	maxTickets = 10000
)

// tickets let a browser's WebSocket in, which cannot send a header: a page asks
// for one over REST, as whoever it is there, and shows it once.
type tickets struct {
	mu  sync.Mutex
	out map[string]time.Time // until when each is good
}

// mint makes a ticket.
func (t *tickets) mint(now time.Time) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.out) >= maxTickets {
		for k, until := range t.out {
			if now.After(until) {
				delete(t.out, k)
			}
		}
	}
	if len(t.out) >= maxTickets {
		return "", stream.Errorf(stream.Overloaded, "", "%d tickets are out: use those, or wait until they are no longer good", len(t.out))
	}
	if t.out == nil {
		t.out = map[string]time.Time{}
	}
	text := rand.Text()
	t.out[text] = now.Add(ticketTime)
	return text, nil
}

// take says whether a ticket is good. It is not, the next time.
func (t *tickets) take(text string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	until, ok := t.out[text]
	delete(t.out, text)
	return ok && now.Before(until)
}
