package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"millrace/workers/onnx"
)

const (
	capacityAge   = 100 // ms, p99
	capacityShare = 0.98
)

var (
	capacitySize = [2]int{1280, 720}
	// mostProbes bounds the search: each takes as long as the cameras take to start, and then
	// a few seconds.
	mostProbes = 8
)

// capacity searches the largest number of cameras answered at full rate, within capacityAge.
func capacity(b *bench) error {
	f, err := b.footageOf("h264", capacitySize[0], capacitySize[1])
	if err != nil {
		return err
	}
	err = b.mostCameras(f, "at 30 fps, motion", motionModel, "model: motion", videoRate)
	if _, e := onnx.Library(); err != nil || e != nil {
		return err
	}
	m, err := writeModels()
	if err != nil {
		return err
	}
	defer m.remove()
	return b.mostCameras(f, "at fps: 10, small CNN", cnnLines(m), "model: cnn, fps: 10", 10)
}

// cnnLines configure the small CNN.
func cnnLines(m *onnxModels) string {
	return fmt.Sprintf("models: [{name: cnn, source: %q, instances: %d, threads: %d, batching: {max_size: %d}, "+
		"input: {image: {scale: %g}}}]\n",
		m.cnn, onnxInstances, onnxThreads, onnxBatch, scale[0])
}

// mostCameras searches the largest number of cameras sending f for which a model answers rate frames per second each.
func (b *bench) mostCameras(f footage, with, models, settings string, rate float64) error {
	most, tooMany := 0, 0
	var best probe
	for range mostProbes {
		n := (most + tooMany) / 2
		if tooMany == 0 {
			n = max(2*most, 4*runtime.GOMAXPROCS(0))
		}
		if n == most {
			break
		}
		p, err := b.tryCameras(f, models, settings, n)
		if err != nil {
			return err
		}
		b.step("%d: %.3g fps, %.0f ms", n, p.fps, p.age)
		if p.fps >= capacityShare*rate && p.age < capacityAge {
			most, best = n, p
		} else {
			tooMany = n
		}
	}
	b.add(Row{Name: fmt.Sprintf("%s cameras %s, answered within %d ms at p99 (%.0f ms)", f.name(), with, capacityAge,
		best.age), Unit: "cameras", Millrace: float64(most)})
	return nil
}

// probe is the result for a number of cameras.
type probe struct {
	fps float64 // of the worst camera
	age float64 // p99 of all, in ms
}

// tryCameras measures n cameras.
func (b *bench) tryCameras(f footage, models, settings string, n int) (p probe, err error) {
	var lines strings.Builder
	lines.WriteString(models + "streams:\n")
	for i := range n {
		fmt.Fprintf(&lines, "  - {name: camera%d, source: %q, %s, policy: latest, loop: true}\n", i, f.path, settings)
	}
	s, err := startServer(lines.String())
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, s.end()) }()

	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	watchers := make([]*watcher, n)
	errs := make([]error, n)
	for i := range watchers {
		watchers[i] = &watcher{}
		wg.Go(func() { errs[i] = watchers[i].watch(ctx, s.addr, fmt.Sprintf("camera%d", i)) })
	}
	if err := s.answered(5); errors.Is(err, context.DeadlineExceeded) {
		return p, nil // too many to start
	} else if err != nil {
		return p, err
	}
	time.Sleep(2 * b.round) // for the answers to frames that waited meanwhile
	from := time.Now()
	time.Sleep(8 * b.round)
	to := time.Now()
	cancel()
	wg.Wait()
	var ages []time.Duration
	for i, w := range watchers {
		if err := errors.Join(w.failed(), errs[i]); err != nil {
			return p, err
		}
		of := w.sinceCapture(from, to)
		if fps := float64(len(of)) / to.Sub(from).Seconds(); i == 0 || fps < p.fps {
			p.fps = fps
		}
		ages = append(ages, of...)
	}
	p.age = p99(ages)
	return p, nil
}
