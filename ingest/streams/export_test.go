package streams

import (
	"context"
	"encoding/json"
)

// HubForTest is a hub without a stream.
type HubForTest struct{ h hub }

// Watch returns what tells how many lines wait for a watcher, and how many it
// lost.
func (h *HubForTest) Watch(room int) func() (int, uint64) {
	w, _ := h.h.watch(room, false)
	return func() (int, uint64) { return len(w.lines), w.lost.Load() }
}

// Send sends a line to all.
func (h *HubForTest) Send(line []byte) { h.h.send(line) }

// ReadKept reads a file of the keeper, and returns what would be written.
func ReadKept(text []byte) ([]byte, error) {
	list, err := parseKept(text)
	if err != nil {
		return nil, err
	}
	return json.Marshal(keptFile{append([]*Config{}, list...)})
}

// GateForTest returns enter of a gate with so many places.
func GateForTest(places int) func(context.Context) (leave func(), err error) {
	return make(gate, places).enter
}

const OpenHold = openHold
