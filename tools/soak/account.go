package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// account counts the frames sent by the clients of one model, and the endings received.
type account struct {
	model string
	// oneShot: the clients send requests without a stream; a drop reaches the client as an error.
	oneShot bool
	// uncoded: errors come without their code.
	uncoded bool
	// cut: the connections of the clients are broken, so that frames and endings may be lost on their way. Without
	// cut, a lost frame is a failure.
	cut bool
	// unloaded: the model is unloaded and loaded again. Requests in between count for the model "".
	unloaded bool

	mu            sync.Mutex
	sent, results uint64
	lost          uint64 // no client received the ending, because a connection was broken
	drops, errors map[string]uint64
}

func newAccount(model string) *account {
	return &account{model: model, drops: map[string]uint64{}, errors: map[string]uint64{}}
}

func (a *account) send()   { a.add(func() { a.sent++ }) }
func (a *account) answer() { a.add(func() { a.results++ }) }

// unsend takes back an unsent frame.
func (a *account) unsend() { a.add(func() { a.sent-- }) }

func (a *account) drop(reason string) { a.add(func() { a.drops[reason]++ }) }
func (a *account) fail(code string)   { a.add(func() { a.errors[code]++ }) }
func (a *account) lose(n int)         { a.add(func() { a.lost += uint64(n) }) }

func (a *account) add(count func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	count()
}

// outcome is the number of ended frames by ending.
type outcome struct {
	Result uint64            `json:"results"`
	Drops  map[string]uint64 `json:"drops"`
	Errors map[string]uint64 `json:"errors"`
}

func sum(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

func (o outcome) ended() uint64 { return o.Result + sum(o.Drops) + sum(o.Errors) }

// served has the server's counts for a model.
type served struct {
	outcome
	Accepted uint64 `json:"accepted"`
	InFlight uint64 `json:"in_flight"`
}

// Line is a row of the report: the counts of one model by its clients and by the server.
type Line struct {
	Model    string  `json:"model"`
	Sent     uint64  `json:"sent"`
	Lost     uint64  `json:"lost"`
	Received outcome `json:"told"`
	Served   served  `json:"served"`
}

// line returns the counts at both ends until now.
func (a *account) line(s served) Line {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Line{Model: a.model, Sent: a.sent, Lost: a.lost, Served: s,
		Received: outcome{a.results, maps.Clone(a.drops), maps.Clone(a.errors)}}
}

// compare returns the differences between the counts of the clients and of the server.
func (a *account) compare(l Line) (wrong []string) {
	bad := func(format string, args ...any) {
		wrong = append(wrong, a.model+": "+fmt.Sprintf(format, args...))
	}
	if l.Sent != l.Received.ended()+l.Lost {
		bad("clients sent %d frames and have %d endings and %d lost ones", l.Sent, l.Received.ended(), l.Lost)
	}
	if l.Lost > 0 && !a.cut {
		bad("%d frames of clients that kept their connections have no ending", l.Lost)
	}
	wrong = append(wrong, l.Served.balance(a.model)...)
	between := func(what string, told, counted uint64) {
		if counted < told || counted > told+l.Lost {
			bad("clients were told %d %s, /metrics has %d, and %d frames were lost on broken connections", told, what,
				counted, l.Lost)
		}
	}
	between("endings", l.Received.ended(), l.Served.Accepted)
	between("results", l.Received.Result, l.Served.Result)
	if n := l.Served.Errors["invalid_argument"]; a.cut && n > l.Received.Errors["invalid_argument"] {
		bad("/metrics has %d errors invalid_argument, though clients sent correct frames: a frame that did not "+
			"arrive completely is not counted", n)
	}
	if a.oneShot {
		between("errors", sum(l.Received.Drops)+sum(l.Received.Errors), sum(l.Served.Drops)+sum(l.Served.Errors))
		return wrong
	}
	for _, reason := range keys(l.Received.Drops, l.Served.Drops) {
		between("drops as "+reason, l.Received.Drops[reason], l.Served.Drops[reason])
	}
	if a.uncoded {
		between("errors", sum(l.Received.Errors), sum(l.Served.Errors))
		return wrong
	}
	for _, code := range keys(l.Received.Errors, l.Served.Errors) {
		between("errors "+code, l.Received.Errors[code], l.Served.Errors[code])
	}
	return wrong
}

// balance returns an error unless each accepted frame has one ending.
func (s served) balance(model string) (wrong []string) {
	if s.InFlight != 0 || s.Accepted != s.ended() {
		wrong = append(wrong, fmt.Sprintf("%s: /metrics has %d accepted frames, %d endings and %d in flight", model,
			s.Accepted, s.ended(), s.InFlight))
	}
	return wrong
}

// add adds the counts of another model.
func (s *served) add(o served) {
	s.Accepted += o.Accepted
	s.InFlight += o.InFlight
	s.Result += o.Result
	for _, pair := range []struct{ to, from map[string]uint64 }{{s.Drops, o.Drops}, {s.Errors, o.Errors}} {
		for k, v := range pair.from {
			pair.to[k] += v
		}
	}
}

// keys returns the keys of two maps, sorted.
func keys(a, b map[string]uint64) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]uint64{}
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// listing writes counts by their names, sorted.
func listing(m map[string]uint64) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
		}
	}
	return strings.Join(parts, ", ")
}
