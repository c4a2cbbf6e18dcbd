package access

import (
	"strconv"
	"testing"
	"time"

	"millrace/stream"
)

// A ticket is valid once, until its expiry; when no further ticket is available, expired tickets make room.
func TestTicketsExpire(t *testing.T) {
	var out Tickets
	accounts, minted, now := NewAccounts(Quotas{}), 0, time.Now()
	anyone := func() *Principal { // a single client may have fewer tickets than all clients together
		minted++
		return &Principal{Key: strconv.Itoa(minted / maxTicketsOfOne)}
	}
	mintFor := func(p *Principal, at time.Time) (string, error) { return out.Issue(p, accounts.Of(p), at) }
	mint := func(at time.Time) string {
		text, err := mintFor(anyone(), at)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	takes := func(text string, at time.Time) bool { return takes(&out, text, at) }
	early, late := mint(now), mint(now)
	if !takes(early, now.Add(TicketTime-1)) {
		t.Error("not good to its end")
	}
	if takes(early, now) {
		t.Error("good twice")
	}
	if takes(late, now.Add(TicketTime)) {
		t.Error("good behind its end")
	}
	if takes(late, now) {
		t.Error("good again after it was refused")
	}
	if takes("", now) || takes("another", now) {
		t.Error("one that was never out is good")
	}

	for range maxTickets {
		mint(now)
	}
	if _, err := mintFor(anyone(), now.Add(TicketTime-1)); stream.CodeOf(err) != stream.Overloaded {
		t.Errorf("one too many: %v", err)
	}
	if text := mint(now.Add(TicketTime + 1)); !takes(text, now.Add(TicketTime+1)) {
		t.Error("a new one is not good")
	}
	if n := len(out.valid) + len(out.of); n != 0 {
		t.Errorf("%d are kept that are no longer good", n)
	}
}

// A client cannot use up the tickets of other clients: each client has a bound, and used and expired tickets do not
// count.
func TestTicketsOfOneClient(t *testing.T) {
	var out Tickets
	now := time.Now()
	accounts, one, other := NewAccounts(Quotas{}), &Principal{Key: "one"}, &Principal{Key: "other"}
	mint := func(p *Principal, at time.Time) (string, error) { return out.Issue(p, accounts.Of(p), at) }
	var texts []string
	for range maxTicketsOfOne {
		text, err := mint(one, now)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	if _, err := mint(one, now); stream.CodeOf(err) != stream.FlowControl {
		t.Errorf("one too many: %v", err)
	}
	if _, err := mint(other, now); err != nil {
		t.Errorf("another client: %v", err)
	}
	if !takes(&out, texts[0], now) || takes(&out, texts[0], now) {
		t.Error("a ticket is not good once")
	}
	for _, want := range []stream.Code{"", stream.FlowControl} {
		if _, err := mint(one, now); err == nil != (want == "") {
			t.Errorf("after one was used: %v", err)
		}
	}
	if _, err := mint(one, now.Add(TicketTime+1)); err != nil || len(out.valid) != 1 || len(out.of) != 1 {
		t.Errorf("after their end: %v, %d tickets of %d clients", err, len(out.valid), len(out.of))
	}
}

// takes reports whether a ticket was valid.
func takes(out *Tickets, text string, at time.Time) bool {
	_, _, ok := out.Take(text, at)
	return ok
}
