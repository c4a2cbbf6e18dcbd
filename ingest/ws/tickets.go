package ws

import (
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/internal/wire"
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
	text := secret(18)
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

// mintTicket answers POST /v2/tickets.
func (a *Adapter) mintTicket(c *fiber.Ctx) error {
	text, err := a.tickets.mint(time.Now())
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.JSON(fiber.Map{"ticket": text, "protocol": wire.TicketPrefix + text, "expires_ms": ticketTime.Milliseconds()})
}

// admit checks the ticket among the subprotocols that a client offers, if there
// is one.
func (a *Adapter) admit(offered []string) error {
	for _, p := range offered {
		if text, ok := strings.CutPrefix(p, wire.TicketPrefix); ok && !a.tickets.take(text, time.Now()) {
			return stream.Errorf(stream.Unauthenticated, "ticket", "is not known, was used, or is older than %v: ask for one at POST /v2/tickets", ticketTime)
		}
	}
	return nil
}
