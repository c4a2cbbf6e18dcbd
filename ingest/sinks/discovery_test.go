//go:build unix

package sinks

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"

	"millrace/internal/testneeds"
	"millrace/stream/rules"
)

// announcedStream is a stream with counts and clips, and the sink that announces it.
type announcedStream struct {
	mu      sync.Mutex
	counts  []ModelCounts
	clip    string
	loading bool
	removed bool
}

func (a *announcedStream) change(f func()) { a.mu.Lock(); f(); a.mu.Unlock() }

func (a *announcedStream) run(t *testing.T, c *MQTT) *running {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, stop: cancel, ended: make(chan struct{}), Sink: Open(c, Env{Stream: "door/1",
		Log:    slog.New(slog.DiscardHandler),
		Counts: func() ([]ModelCounts, bool) { a.mu.Lock(); defer a.mu.Unlock(); return a.counts, !a.loading },
		Picture: func() (string, func() ([]byte, error)) {
			a.mu.Lock()
			defer a.mu.Unlock()
			clip := a.clip
			return clip, func() ([]byte, error) {
				if clip == "gone" {
					return nil, errors.New("the clip was removed")
				}
				return []byte("picture of " + clip), nil
			}
		},
		Removed: func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.removed },
	})}
	go func() { defer close(r.ended); r.Run(ctx) }()
	t.Cleanup(func() { r.once.Do(r.Close); cancel(); <-r.ended })
	return r
}

// collect reads the messages of a subscriber until one has the begin of a text, and keeps the payloads by topic.
func collect(t *testing.T, in *bufio.Scanner, begin string, payloads map[string]string) {
	t.Helper()
	for {
		text := next(t, in)
		f := strings.SplitN(text+" ", " ", 3)
		if payloads[f[0]] = strings.TrimSuffix(f[2], " "); payloads[f[0]] == "" {
			delete(payloads, f[0])
		}
		if strings.HasPrefix(text, begin) {
			return
		}
	}
}

// kept returns the retained payload of a topic.
func (b *mosquitto) kept(topic string) string {
	b.t.Helper()
	out, err := exec.Command(testneeds.Program(b.t, "mosquitto_sub"), "-p", b.port(), "-t", topic, "-C", "1", "-W",
		"10", "--retained-only", "-F", "%p").Output()
	if err != nil {
		b.t.Fatalf("%s: %v", topic, err)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// Home Assistant's rules for the message: the schema of discovery of a device, and the required keys of the platforms.
func checkAnnouncement(t *testing.T, text string) map[string]component {
	t.Helper()
	var a announcement
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatal(err, text)
	}
	if len(a.Device.Identifiers) != 1 || a.Device.Name != "door/1" || a.Origin.Name == "" ||
		a.Availability != "millrace/door%2F1/status" {
		t.Errorf("%+v", a)
	}
	for key, c := range a.Components {
		topic := c.StateTopic + c.ImageTopic
		switch {
		case reflect.DeepEqual(c, component{Platform: c.Platform}): // is removed
		case c.UniqueID == "" || c.Name == "" || topic == "" || strings.ContainsAny(topic, "+#"),
			!regexp.MustCompile(`^(sensor|binary_sensor|event|image)$`).MatchString(c.Platform),
			c.Platform == "event" && len(c.EventTypes) != 10, c.Platform == "image" && c.ContentType != "image/jpeg":
			t.Errorf("%s: %+v", key, c)
		}
	}
	return a.Components
}

func crossings(in uint64) rules.Crossings {
	return rules.Crossings{Directions: rules.Directions{In: in}}
}

// A stream is a device of Home Assistant with its counts and the picture of its newest clip. Removed lines and zones, a
// removed sink and a removed stream leave nothing behind.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	b := startMosquitto(t, "allow_anonymous true")
	in := b.subscribe()
	got := map[string]string{}
	a := &announcedStream{counts: []ModelCounts{{Model: "people", Counts: rules.Counts{
		Lines: []rules.LineCounts{{Name: "a/b+", Crossings: crossings(3)}},
		Zones: []rules.ZoneCounts{{Name: "yard", Stays: rules.Stays{Now: 2}}}}}}}
	c := &MQTT{URL: "mqtt://" + b.addr, Discovery: "homeassistant"}
	s := a.run(t, c)
	const counts = "millrace/door%2F1/counts/people/"
	collect(t, in, counts+"zones/yard 0 2", got)
	var config string
	for topic := range got {
		if regexp.MustCompile(`^homeassistant/device/[A-Za-z0-9_-]+/config$`).MatchString(topic) {
			config = topic
		}
	}
	first := checkAnnouncement(t, got[config])
	if len(first) != 5 || got[counts+"lines/a%2Fb%2B/in"] != "3" || got[counts+"lines/a%2Fb%2B/out"] != "0" {
		t.Errorf("%+v %q", first, got)
	}
	if b.kept(config) != got[config] || b.kept(counts+"zones/yard") != "2" {
		t.Error("not retained")
	}

	a.change(func() { a.counts[0].Zones[0].Now, a.clip = 0, "one" })
	collect(t, in, "millrace/door%2F1/picture 0 picture of one", got)
	if got[counts+"zones/yard"] != "0" {
		t.Errorf("%q", got)
	}
	a.change(func() {
		a.counts = []ModelCounts{{Model: "people", Counts: rules.Counts{Zones: a.counts[0].Zones}}}
		a.clip = "gone"
	})
	collect(t, in, config, got)
	for key, c := range checkAnnouncement(t, got[config]) {
		if removed := first[key].Name == "a/b+ in" || first[key].Name == "a/b+ out"; removed != (c.UniqueID == "") {
			t.Errorf("%+v", c)
		}
	}
	collect(t, in, config, got)
	if now := checkAnnouncement(t, got[config]); len(now) != 3 {
		t.Errorf("%+v", now)
	}
	collect(t, in, counts+"lines/a%2Fb%2B/out", got)
	if len(got[counts+"lines/a%2Fb%2B/in"]+got[counts+"lines/a%2Fb%2B/out"]) > 0 {
		t.Errorf("%q", got)
	}

	s.close() // with the server
	collect(t, in, "millrace/door%2F1/status 0 offline", got)
	if checkAnnouncement(t, b.kept(config)); got["millrace/door%2F1/picture"] != "picture of one" {
		t.Errorf("%q", got)
	}

	// After a start, the components stay while the model is not loaded.
	a.change(func() { a.loading = true; a.counts = nil })
	s = a.run(t, c)
	s.close()
	collect(t, in, "millrace/door%2F1/status 0 offline", got)
	if now := checkAnnouncement(t, b.kept(config)); len(now) != 3 {
		t.Errorf("%+v", now)
	}

	// After a start with other rules, the components of before are removed, and others keep their ids.
	a.change(func() {
		a.loading = false
		a.counts = []ModelCounts{{Model: "people", Counts: rules.Counts{Lines: []rules.LineCounts{{Name: "door"}}}}}
		a.clip = ""
	})
	c.Send = "events"
	s = a.run(t, c)
	for {
		collect(t, in, config, got)
		stubs := 0
		for _, c := range checkAnnouncement(t, got[config]) {
			if c.UniqueID == "" {
				stubs++
			}
		}
		if stubs == 2 { // the zone's
			break
		}
	}
	collect(t, in, counts+"zones/yard", got)
	second := checkAnnouncement(t, b.kept(config))
	if len(second) != 4 {
		t.Errorf("%+v", second)
	}
	for key, c := range second {
		if old, known := first[key]; known != (c.Platform == "image") || known && old.UniqueID != c.UniqueID {
			t.Errorf("%+v, before %+v", c, old)
		}
	}

	a.change(func() { a.removed = true })
	s.close()
	collect(t, in, "millrace/door%2F1/status 0 offline", got)
	delete(got, "millrace/door%2F1/status")
	if delete(got, "begun"); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
}

// A sink that announces the same device as the sink before leaves the device on the broker.
func TestAnnounces(t *testing.T) {
	one := &MQTT{URL: "mqtt://127.0.0.1", Discovery: "ha"}
	for name, c := range map[string]struct {
		Settings
		same bool
	}{
		"other messages":   {&MQTT{URL: one.URL, Discovery: "ha", Send: "events"}, true},
		"the same topic":   {&MQTT{URL: one.URL, Discovery: "ha", Topic: "millrace/gate"}, true},
		"another topic":    {&MQTT{URL: one.URL, Discovery: "ha", Topic: "gate"}, false},
		"another prefix":   {&MQTT{URL: one.URL, Discovery: "hb"}, false},
		"another broker":   {&MQTT{URL: "mqtt://127.0.0.2", Discovery: "ha"}, false},
		"no discovery":     {&MQTT{URL: one.URL}, false},
		"another receiver": {&File{Path: "ha"}, false},
	} {
		if same := Announces(one, "gate") == Announces(c.Settings, "gate"); same != c.same {
			t.Errorf("%s: the same device is %v", name, same)
		}
	}
}

// The message of a stream with more lines than fit into a message of the broker is not published, and the results are.
func TestDiscoveryTooLarge(t *testing.T) {
	t.Parallel()
	b := startMosquitto(t, "allow_anonymous true", "max_packet_size 2000")
	in := b.subscribe()
	a := &announcedStream{counts: []ModelCounts{{Model: "people"}}}
	for i := range 100 {
		a.counts[0].Lines = append(a.counts[0].Lines, rules.LineCounts{Name: fmt.Sprint("line", i)})
	}
	s := a.run(t, &MQTT{URL: "mqtt://" + b.addr, Discovery: "ha/x"})
	s.Write(seq(0))
	got := map[string]string{}
	collect(t, in, "millrace/door%2F1/results", got)
	for topic := range got {
		if strings.HasPrefix(topic, "ha/") {
			t.Error(topic)
		}
	}
	s.until("sent", func(st Stats) bool { return st.Sent == 1 && st.Error == "" })
}
