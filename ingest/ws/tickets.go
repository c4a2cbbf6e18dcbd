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

// tickets authenticate a browser's WebSocket, which cannot send a header: a page
// requests a ticket over REST, where it is authenticated, and uses it once.
type tickets struct {
	mu    sync.Mutex
	valid map[string]time.Time // until when each ticket is valid
}

// mint returns a new ticket.
func (t *tickets) mint(now time.Time) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.valid) >= maxTickets {
		for k, until := range t.valid {
			if now.After(until) {
				delete(t.valid, k)
			}
		}
	}
	if len(t.valid) >= maxTickets {
		return "", stream.Errorf(stream.Overloaded, "", "%d tickets are valid already: use those, or wait until they expire", len(t.valid))
	}
	if t.valid == nil {
		t.valid = map[string]time.Time{}
	}
	text := rand.Text()
	t.valid[text] = now.Add(ticketTime)
	return text, nil
}

// take reports whether a ticket is valid, and uses it up.
func (t *tickets) take(text string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	until, ok := t.valid[text]
	delete(t.valid, text)
	return ok && now.Before(until)
}
