package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"millrace/client/load"
	"millrace/ingest/access"
)

// The attacked server, and the streams of the server's regular client.
const (
	attackedBudget  = 256 << 20
	attackedStreams = 4
	// Bounds for a client's rate beside attackers, and for the server's memory.
	keptFrames    = 0.9
	slowerBy      = 2
	attackedLimit = 1.3*attackedBudget + 300e6
)

// attackAll measures a client's streams, and the memory of the server, while all attackers are at work.
func attackAll(b *bench) error { return b.attacked([][]string{kinds()}) }

// attackEach does the same for each kind of attackers.
func attackEach(b *bench) error {
	var each [][]string
	for _, k := range kinds() {
		each = append(each, []string{k})
	}
	return b.attacked(each)
}

// attacked compares a client's streams beside attackers with the same streams without attackers.
func (b *bench) attacked(assaults [][]string) error {
	pictures, err := renderClip(640, 480)
	if err != nil {
		return err
	}
	defer pictures.remove()
	f, err := b.footageOf("h264", 1280, 720)
	if err != nil {
		return err
	}
	video, err := f.chunksDir()
	if err != nil {
		return err
	}
	var list []access.Key
	var keys [2]string // of the client, and of the attackers
	for i, name := range []string{"camera", "visitor"} {
		var entry access.Key
		entry, keys[i] = access.NewKey(name, access.Grant{Roles: []string{"infer", "manage"}[:1+i]})
		list = append(list, entry)
	}
	file := filepath.Join(b.dir, "attacked.yaml")
	if err := access.WriteKeys(file, list); err != nil {
		return err
	}
	for _, kinds := range assaults {
		if err := b.assault(kinds, file, keys, pictures.dir, video); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(kinds, ", "), err)
		}
	}
	return nil
}

// assault measures one set of attackers, in rounds with and without attackers.
func (b *bench) assault(kinds []string, file string, keys [2]string, pictures, video string) (err error) {
	if n := descriptors(silentOpen + otherDescriptors); n < silentOpen+otherDescriptors {
		b.step("only %d descriptors may be open, and so %d silent connections:", n, n-otherDescriptors)
	}
	s, err := startServer(fmt.Sprintf("auth: {keys: %q}\ntrusted_proxies: [192.0.2.1]\nlimits: {max_connections: "+
		"%d}\nmemory: {budget: %d}\nmodels: [{name: motion, source: motion, instances: 2}, {name: same, source: "+
		"identity}]\n", file, silentOpen+otherDescriptors, attackedBudget))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	good, err := startChild()
	if err != nil {
		return err
	}
	defer good.end()
	length := max(6*b.round, 200*time.Millisecond)
	lead := 4 * b.round // until all attackers are at work
	cfg := load.Config{
		URL: "http://" + s.addr, Model: "motion", Streams: attackedStreams, Rate: videoRate, Dir: pictures,
		Header:   map[string]string{"Authorization": "Bearer " + keys[0]},
		Duration: length, Warmup: length / 6, Grace: 5 * time.Second, Options: map[string]string{"policy": "latest"},
	}
	name := "all attackers"
	if len(kinds) == 1 {
		name = "attackers: " + kinds[0]
	}
	var alone, beside, kept, p99s, slower []float64
	var before, most float64
	if use, err := s.usage(); err == nil {
		before = use.pss
	}
	for i := range max(b.rounds/3, 1) {
		b.step("%s %d", name, i)
		r, err := good.load(cfg)
		if err != nil {
			return err
		}
		x := r[0]
		hostile, err := startPinned(runtime.NumCPU() - 1)
		if err != nil {
			return err
		}
		ended := make(chan error, 1)
		var did answer
		go func() {
			var err error
			did, err = hostile.do(job{Assault: &assault{Kinds: kinds, Addr: s.addr, Key: keys[1], Video: video,
				For: lead + length + lead/2}})
			ended <- err
		}()
		time.Sleep(lead)
		stop, peak := make(chan struct{}), make(chan float64)
		go func() { peak <- s.peak(stop) }()
		r, err = good.load(cfg)
		close(stop)
		most = max(most, <-peak)
		if err = errors.Join(err, <-ended, hostile.end()); err != nil {
			return err
		}
		y := r[0]
		for kind, n := range did.Done {
			if n == 0 && b.round >= 500*time.Millisecond { // in shorter rounds, some may not have begun
				return fmt.Errorf("the attackers %s did nothing", kind)
			}
			b.step("%s %d", kind, n)
		}
		alone, beside = append(alone, x.FPS), append(beside, y.FPS)
		kept, slower = append(kept, y.FPS/x.FPS), append(slower, y.Latency.P99/x.Latency.P99)
		p99s = append(p99s, y.Latency.P99)
		if y.Unaccounted != 0 || y.Unexpected != 0 || len(y.Lost) > 0 {
			return fmt.Errorf("the client's streams: %d frames without an ending, %d endings too many, lost: %v",
				y.Unaccounted, y.Unexpected, y.Lost)
		}
	}
	row := Row{Name: name + ": frames answered to another client, beside them against without", Unit: "frames/s",
		Bare: median(alone), Millrace: median(beside), Ratio: median(kept)}
	b.add(row.atLeast(keptFrames))
	row = Row{Name: name + ": p99 of its answers", Unit: "ms", Millrace: median(p99s),
		Bare: median(p99s) / median(slower), Ratio: median(slower)}
	b.add(row.atMost(slowerBy))
	row = Row{Name: name + ": most resident memory of the server and its ffmpegs", Unit: "MB", Bare: before / 1e6,
		Millrace: most / 1e6, Limit: fmt.Sprintf("<= %.0f", attackedLimit/1e6), Met: most <= attackedLimit}
	b.add(row)
	return nil
}

// peak returns the largest memory of the server and its ffmpeg processes until stop.
func (s *serverProcess) peak(stop <-chan struct{}) (most float64) {
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for {
		if use, err := s.usage(); err == nil {
			most = max(most, use.pss)
		}
		select {
		case <-stop:
			return most
		case <-t.C:
		}
	}
}
