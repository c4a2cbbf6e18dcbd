package streams

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"millrace/ingest/history"
	"millrace/stream/rules"
)

// objects is an engine with objects that would leave.
type objects []rules.Event

func (o *objects) Pending() (next, ending []rules.Event) { return nil, *o }
func (o *objects) Finish() []rules.Event                 { return nil }

// The last state of a stream has the objects since the last change of the counts, and no state follows.
func TestTheLastStateOfAStream(t *testing.T) {
	h := history.New(history.Options{})
	f := &runner{a: &Adapter{opts: Options{History: h, Log: slog.New(slog.DiscardHandler)}}, name: "gate"}
	k := &keptRules{Handle: rules.NewHandle(&rules.Rules{Zones: []rules.Zone{{Name: "yard"}}}), restored: true}
	inside := &objects{}
	k.Use(func(live *rules.Live) {
		live.Engine = inside
		live.Tally.Begin(time.Unix(1e9, 0))
	})
	state := func(words string) {
		t.Helper()
		text, err := h.State("gate", "people")
		if has := strings.Contains(string(text), words); err != nil || !has {
			t.Errorf("%s, %v, want %q", text, err, words)
		}
	}
	k.keep(f, "people", false)
	state(`"events":null`)
	*inside = objects{{ID: "late", Type: rules.LeaveEvent, Rule: "yard"}}
	k.keep(f, "people", true)
	state(`"late"`)
	h.SetState("gate", "people", []byte("removed"))
	k.Reset(time.Unix(1e9, 0))
	k.keep(f, "people", false) // of a round that began before the end
	state("removed")
}
