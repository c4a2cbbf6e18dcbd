package streams

import "encoding/json"

// FanoutForTest is a fanout without a stream.
type FanoutForTest struct{ h fanout }

// Watch returns a function that returns a watcher's numbers of waiting and lost lines.
func (h *FanoutForTest) Watch(room int) func() (int, uint64) {
	w, _ := h.h.watch(room, false, "")
	return func() (int, uint64) { return len(w.lines), w.lost.Load() }
}

// Send sends a line to all.
func (h *FanoutForTest) Send(line []byte) { h.h.send(line, "") }

// ReadStore parses a store's file and encodes the result again.
func ReadStore(text []byte) ([]byte, error) {
	list, err := parseStore(text)
	if err != nil {
		return nil, err
	}
	return json.Marshal(storeFile{append([]*Config{}, list...)})
}

// Add adds a stream of the configuration.
func (a *Adapter) Add(t interface{ Fatal(...any) }, c Config) {
	err := c.Validate()
	if err == nil {
		err = a.add(c, "config", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Change changes a stream to other settings of the configuration.
func (a *Adapter) Change(t interface{ Fatal(...any) }, c Config) {
	f, err := a.find(c.Name)
	if err == nil {
		err = a.reconfigure(f, c)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// AddRequested adds a stream like a request whose address was public at the time of the check.
func (a *Adapter) AddRequested(t interface{ Fatal(...any) }, c Config) {
	if err := a.add(c, "request", nil); err != nil {
		t.Fatal(err)
	}
}
