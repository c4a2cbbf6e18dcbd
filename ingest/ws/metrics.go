package ws

import "millrace/ingest"

var (
	_ ingest.Measured = (*Adapter)(nil)
	_ ingest.Drainer  = (*Adapter)(nil)
	_ ingest.Starter  = (*Adapter)(nil)
)

// Metrics implements ingest.Measured.
func (a *Adapter) Metrics() ingest.Metrics {
	st := a.Stats()
	m := ingest.Metrics{
		Sessions:    map[string]int{"ws": st.Conns, "ws_waiting": st.Waiting},
		Videos:      map[string]int{"sent": st.Decoders, "pulled": st.Pulls},
		TooSlow:     st.TooSlow,
		OutboxBytes: st.OutboxBytes, KeptBytes: st.KeptBytes, Credits: st.Credits, WithoutCredit: st.WithoutCredit,
		Contexts: a.contexts.Broken(), NoModel: a.sessions.Refused(),
		Closed: map[string]uint64{}, StreamEnds: map[string]uint64{}, Goroutines: map[string]int{},
	}
	for why, n := range st.Ends {
		m.Closed[string(why)] = n
	}
	for why, n := range st.StreamEnds {
		m.StreamEnds[string(why)] = n
	}
	for name, n := range st.Goroutines {
		m.Goroutines["ws_"+name] = n
	}
	for name, n := range a.decoders.Goroutines() {
		m.Goroutines["ws_"+name] = n
	}
	return m
}
