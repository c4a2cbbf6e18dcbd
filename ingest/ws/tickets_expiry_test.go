package ws

import (
	"testing"
	"time"

	"millrace/stream"
)

// A ticket is good for as long as it says, once; when all are out, those that are
// no longer good make room.
func TestTicketsExpire(t *testing.T) {
	var out tickets
	now := time.Now()
	mint := func(at time.Time) string {
		text, err := out.mint(at)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	early, late := mint(now), mint(now)
	if !out.take(early, now.Add(ticketTime-1)) {
		t.Error("not good to its end")
	}
	if out.take(early, now) {
		t.Error("good twice")
	}
	if out.take(late, now.Add(ticketTime)) {
		t.Error("good behind its end")
	}
	if out.take(late, now) {
		t.Error("good again after it was refused")
	}
	if out.take("", now) || out.take("another", now) {
		t.Error("one that was never out is good")
	}

	for range maxTickets {
		mint(now)
	}
	if _, err := out.mint(now.Add(ticketTime - 1)); stream.CodeOf(err) != stream.Overloaded {
		t.Errorf("one too many: %v", err)
	}
	if text := mint(now.Add(ticketTime + 1)); !out.take(text, now.Add(ticketTime+1)) {
		t.Error("a new one is not good")
	}
	if n := len(out.valid); n != 0 {
		t.Errorf("%d are kept that are no longer good", n)
	}
}
