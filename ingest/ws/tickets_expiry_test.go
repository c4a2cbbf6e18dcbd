package ws

import (
	"strconv"
	"testing"
	"time"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/stream"
)

// A ticket is good for as long as it says, once; when all are out, those that are
// no longer good make room.
func TestTicketsExpire(t *testing.T) {
	var out tickets
	gate, minted, now := ingest.NewGate(nil, ingest.NewEverybody(access.Quotas{})), 0, time.Now()
	anyone := func() *ingest.Client { // one client has fewer tickets than there may be in all
		minted++
		return gate.Vouch(&access.Principal{Key: strconv.Itoa(minted / maxOfOne)})
	}
	mint := func(at time.Time) string {
		text, err := out.mint(anyone(), at)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	takes := func(text string, at time.Time) bool { return takes(&out, text, at) }
	early, late := mint(now), mint(now)
	if !takes(early, now.Add(ticketTime-1)) {
		t.Error("not good to its end")
	}
	if takes(early, now) {
		t.Error("good twice")
	}
	if takes(late, now.Add(ticketTime)) {
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
	if _, err := out.mint(anyone(), now.Add(ticketTime-1)); stream.CodeOf(err) != stream.Overloaded {
		t.Errorf("one too many: %v", err)
	}
	if text := mint(now.Add(ticketTime + 1)); !takes(text, now.Add(ticketTime+1)) {
		t.Error("a new one is not good")
	}
	if n := len(out.valid) + len(out.of); n != 0 {
		t.Errorf("%d are kept that are no longer good", n)
	}
}

// One client cannot take the tickets of others: it has a bound of its own, which used and
// expired tickets do not count towards.
func TestTicketsOfOneClient(t *testing.T) {
	var out tickets
	now := time.Now()
	gate := ingest.NewGate(nil, ingest.NewEverybody(access.Quotas{}))
	one, other := gate.Vouch(&access.Principal{Key: "one"}), gate.Vouch(&access.Principal{Key: "other"})
	var texts []string
	for range maxOfOne {
		text, err := out.mint(one, now)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	if _, err := out.mint(one, now); stream.CodeOf(err) != stream.FlowControl {
		t.Errorf("one too many: %v", err)
	}
	if _, err := out.mint(other, now); err != nil {
		t.Errorf("another client: %v", err)
	}
	if !takes(&out, texts[0], now) || takes(&out, texts[0], now) {
		t.Error("a ticket is not good once")
	}
	for _, want := range []stream.Code{"", stream.FlowControl} {
		if _, err := out.mint(one, now); err == nil != (want == "") {
			t.Errorf("after one was used: %v", err)
		}
	}
	if _, err := out.mint(one, now.Add(ticketTime+1)); err != nil || len(out.valid) != 1 || len(out.of) != 1 {
		t.Errorf("after their end: %v, %d tickets of %d clients", err, len(out.valid), len(out.of))
	}
}

// takes reports whether a ticket was valid.
func takes(out *tickets, text string, at time.Time) bool {
	_, ok := out.take(text, at)
	return ok
}
