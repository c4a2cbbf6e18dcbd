//go:build !nometrics

package frames_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"millrace/config"
	"millrace/ingest/sinks"
	"millrace/ingest/streams"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// TestToldOfSeveralModels: for a stream with several models, the file, the watchers of one model and of all models,
// the stream's state and /metrics have equal counts for each model, to the frame.
func TestToldOfSeveralModels(t *testing.T) {
	const name, pictures = "told", 11
	dir := t.TempDir()
	for n := range pictures {
		b := servertest.JPEG(t, 8, 8)
		if n == 8 {
			b = []byte("not a picture")
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.jpg", n)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lines := filepath.Join(t.TempDir(), "lines")
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Log: config.Log{Level: "error", File: filepath.Join(t.TempDir(), "log")}}
	st := streams.Config{Name: name, Source: "folder:" + dir, FPS: 50, Paused: true,
		Policy: stream.Policy{Mode: stream.Every},
		Sinks:  []sinks.Settings{&sinks.File{Path: lines, MaxSize: 1 << 20}}}
	want := map[string]string{
		// one result is not UTF-8 and becomes an error
		"all-ends": "error internal 1, error invalid_argument 1, error unsupported 2, result 7",
		"limited":  "drop rate 9, error invalid_argument 1, result 1",
		"calm":     "error invalid_argument 1, result 10",
	}
	for model := range want {
		c := &scene{T: t, model: model, told: map[string]int{}}
		scenes.Store(model, c)
		entry := streams.ModelConfig{Model: model}
		switch model {
		case "all-ends":
			c.bySeq = each
		case "limited":
			entry.Policy.MaxFPS = 0.001
		}
		st.Models = append(st.Models, entry)
		cfg.Models = append(cfg.Models, workers.Config{Name: model, Source: "scripted"})
	}
	cfg.Streams = []streams.Config{st}
	s, stop := servertest.RunWith(t, cfg)

	// watch counts the endings in lines, by model.
	watch := func(in *bufio.Scanner) map[string]map[string]int {
		told := map[string]map[string]int{}
		for in.Scan() {
			if line := in.Bytes(); len(line) > 0 {
				c := &scene{T: t, told: map[string]int{}}
				var l struct{ Model string }
				if _, n := c.tally(line); n == 0 {
					continue
				}
				if err := json.Unmarshal(line, &l); err != nil {
					t.Error(err)
				}
				if told[l.Model] == nil {
					told[l.Model] = map[string]int{}
				}
				for ending, n := range c.told {
					told[l.Model][ending] += n
				}
			}
		}
		return told
	}
	var watchers sync.WaitGroup
	seen := map[string]map[string]map[string]int{}
	var mu sync.Mutex
	for _, query := range append([]string{""}, slices.Collect(maps.Keys(want))...) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.Addr("http")+"/v2/streams/"+name+
			"/results?model="+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "application/x-ndjson")
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		watchers.Go(func() {
			defer resp.Body.Close()
			told := watch(bufio.NewScanner(resp.Body))
			mu.Lock()
			defer mu.Unlock()
			seen[query] = told
		})
	}
	change, err := http.NewRequestWithContext(t.Context(), "PATCH", "http://"+s.Addr("http")+"/v2/streams/"+name,
		strings.NewReader(`{"paused":false}`))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(change); err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	} else {
		_ = resp.Body.Close()
	}
	watchers.Wait() // until the stream has ended
	file, err := os.Open(lines)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	written := watch(bufio.NewScanner(file))
	if len(written) != len(want) || len(seen[""]) != len(want) {
		t.Errorf("written: %v, watched: %v", written, seen[""])
	}
	var state struct {
		Models []struct {
			Model           string
			Results, Errors int
			Drops           map[string]int
		}
	}
	_, text := servertest.Get(t, s, "/v2/streams/"+name)
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		t.Fatal(err)
	}
	if len(state.Models) != len(want) {
		t.Fatal(text)
	}
	_, metrics := servertest.Get(t, s, "/metrics")
	for _, m := range state.Models {
		told := maps.Clone(written[m.Model])
		for why, n := range m.Drops {
			if n > 0 {
				told["drop "+why] = n
			}
		}
		if got := listing(told); got != want[m.Model] {
			t.Errorf("%s: told %s\nwant %s", m.Model, got, want[m.Model])
		}
		for query, told := range map[string]map[string]int{"": seen[""][m.Model], m.Model: seen[m.Model][m.Model]} {
			if listing(told) != listing(written[m.Model]) || len(seen[m.Model]) != 1 {
				t.Errorf("%s: watchers of %q were told %s, written: %s", m.Model, query, listing(told),
					listing(written[m.Model]))
			}
		}
		counted := countsOf(t, s, m.Model)
		if got := listing(tellable(counted, false, false)); got != listing(told) || counted["accepted"] != pictures {
			t.Errorf("%s: counted %s, told %s", m.Model, listing(counted), listing(told))
		}
		results, errors := counted["result"], 0
		for code, n := range counted {
			switch kind, _, _ := strings.Cut(code, " "); kind {
			case "error":
				errors += n
			case "unsendable": // a result of the model, and an error for the watchers of the stream
				results, errors = results-n, errors+n
			}
		}
		rate := counted["drop rate"]
		if m.Results != results || m.Errors != errors || m.Drops["rate"] != rate ||
			m.Results+m.Errors+rate != pictures {
			t.Errorf("%s: its state has %+v, counted: %s", m.Model, m, listing(counted))
		}
		for series, n := range map[string]int{
			`frames_total{model="%s",outcome="result",stream="told"}`:        results,
			`frames_total{model="%s",outcome="drop",stream="told"}`:          rate,
			`frames_total{model="%s",outcome="error",stream="told"}`:         errors,
			`dropped_frames_total{model="%s",reason="rate",stream="told"}`:   rate,
			`dropped_frames_total{model="%s",reason="memory",stream="told"}`: 0,
			`delivered_results_total{model="%s",stream="told"}`:              results,
		} {
			if line := fmt.Sprintf("\nmillrace_stream_"+series+" %d\n", m.Model, n); !strings.Contains(metrics, line) {
				t.Errorf("/metrics lacks %s", line)
			}
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
