package client

import (
	"context"
	"net/http"
	"time"

	"millrace/stream/rules"
)

// Event is an event in the history of a server.
type Event struct {
	rules.Event
	Model string    `json:"model"`
	Time  time.Time `json:"time"` // by the server's clock
}

// EventQuery selects events. Empty fields select all.
type EventQuery struct {
	Stream string
	Type   rules.EventType
	Rule   string // name of a line, zone or condition
	Class  string
	From   time.Time // From <= Event.Time < To
	To     time.Time
	Oldest bool   // the oldest first; otherwise the newest first
	Limit  int    // 0 = 100, at most 1000
	After  string // the place returned with the page before
}

// Events returns a page of the server's events, and the place of the next page, "" at the end. With q.Oldest, a page
// with events always has a place: later events come after the place.
func (c *Client) Events(ctx context.Context, q EventQuery) (events []Event, next string, err error) {
	v := pageQuery(q.Limit, map[string]string{"camera": q.Stream, "type": string(q.Type), "rule": q.Rule,
		"class": q.Class, "after": q.After})
	for name, at := range map[string]time.Time{"from": q.From, "to": q.To} {
		if !at.IsZero() {
			v.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	if q.Oldest {
		v.Set("order", "oldest")
	}
	var page struct {
		Events []Event `json:"events"`
		Next   string  `json:"next"`
	}
	err = c.doJSON(ctx, http.MethodGet, c.url(v, "v2", "events"), nil, &page)
	return page.Events, page.Next, err
}
