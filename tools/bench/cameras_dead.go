package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"millrace/ingest/sources"
	"millrace/ingest/streams"
	"millrace/server"
	"millrace/stream"
)

// watchedCameras is how many cameras the server watches.
var watchedCameras = 16

// The pictures are few and small, because each camera has an ffmpeg on the same processors as the server.
const watchedFPS = 10

// camerasDead measures the effect on other cameras when one camera is killed and another stalls, compared with the
// same cameras just before. The second phase is long enough for the server to give up the stalled camera and
// reconnect. Ages count from the server's receipt of the frame.
func camerasDead(b *bench) error {
	f, err := renderClip(smallW, smallH)
	if err != nil {
		return err
	}
	defer f.remove()
	var pairs []beforeAndAfter
	for k := range max((b.rounds+1)/2, 1) {
		b.step("%d", k+1)
		p, err := b.killAndStall(f.frames)
		if err != nil {
			return err
		}
		pairs = append(pairs, p)
	}
	b.addPairs(pairs)
	return nil
}

// killAndStall measures both phases, on a new server, because the back-off of failed
// cameras grows.
func (b *bench) killAndStall(frames [][]byte) (p beforeAndAfter, err error) {
	cameras := make([]*camera, watchedCameras)
	entries := make([]streams.Config, watchedCameras)
	for i := range cameras {
		if cameras[i], err = newCamera(frames, watchedFPS); err != nil {
			return p, err
		}
		defer cameras[i].close()
		entries[i] = streams.Config{Name: fmt.Sprintf("camera%d", i), Source: cameras[i].url(), Model: "delay"}
	}
	t, err := serve(func(c *server.Config) { c.Streams = entries }, delayModel("delay", stream.Params{}))
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, t.end()) }()

	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	watchers := make([]*watcher, watchedCameras)
	ended := make(chan error, watchedCameras)
	for i := range watchers {
		watchers[i] = &watcher{}
		wg.Go(func() { ended <- watchers[i].watch(ctx, t.addr, entries[i].Name) })
	}
	if err := allRun(watchers, ended); err != nil {
		return p, fmt.Errorf("%w: %s", err, t.streamsNotRunning())
	}
	from := time.Now()
	time.Sleep(8 * b.round)
	failed := time.Now()
	cameras[0].set(killed)
	cameras[1].set(stalled)
	time.Sleep(24 * b.round)
	return compare(watchers[2:], from, failed, time.Now())
}

// streamsNotRunning describes the server streams that do not run.
func (t *target) streamsNotRunning() string {
	var m struct {
		Streams []json.RawMessage `json:"streams"`
	}
	resp, err := http.Get("http://" + t.addr + "/v2/streams")
	if err == nil {
		defer resp.Body.Close()
		err = json.NewDecoder(resp.Body).Decode(&m)
	}
	if err != nil {
		return err.Error()
	}
	var text []string
	for _, s := range m.Streams {
		var of struct{ State string }
		if json.Unmarshal(s, &of) == nil && of.State != string(sources.Running) {
			text = append(text, string(s))
		}
	}
	return strings.Join(text, "\n")
}

// warmUpSeconds is how long all cameras run before the measurement.
const warmUpSeconds = 2 // s

// allRun waits for a frame of each camera, then for warmUpSeconds.
func allRun(watchers []*watcher, ended <-chan error) error {
	late := time.After(time.Minute)
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	seen := func(w *watcher, n int) error {
		for w.count() < n {
			select {
			case <-look.C:
			case err := <-ended:
				return err
			case <-late:
				return errors.New("not all cameras are seen after a minute")
			}
		}
		return nil
	}
	for _, w := range watchers {
		if err := seen(w, 1); err != nil {
			return err
		}
	}
	return seen(watchers[0], watchers[0].count()+warmUpSeconds*watchedFPS)
}

// beforeAndAfter are the measurements of the same cameras in both phases.
type beforeAndAfter struct {
	fps, age [2]float64 // of all cameras together; p99 in ms
	worst    float64    // the least ratio of a camera's fps, second phase to first
}

func compare(of []*watcher, from, mid, to time.Time) (p beforeAndAfter, err error) {
	var all [2][]time.Duration
	for i, w := range of {
		if err = w.failed(); err != nil {
			return p, err
		}
		before, after := w.between(from, mid), w.between(mid, to)
		all[0], all[1] = append(all[0], before...), append(all[1], after...)
		ratio := 0.
		if len(before) > 0 {
			ratio = float64(len(after)) / float64(len(before)) * mid.Sub(from).Seconds() / to.Sub(mid).Seconds()
		}
		if i == 0 || ratio < p.worst {
			p.worst = ratio
		}
	}
	for i, d := range []time.Duration{mid.Sub(from), to.Sub(mid)} {
		p.fps[i], p.age[i] = float64(len(all[i]))/d.Seconds(), p99(all[i])
	}
	return p, nil
}

// addPairs adds the medians of the pairs.
func (b *bench) addPairs(pairs []beforeAndAfter) {
	var fps0, fps1, age0, age1, worst, ageRatio []float64
	for _, p := range pairs {
		fps0, fps1, age0, age1 = append(fps0, p.fps[0]), append(fps1, p.fps[1]), append(age0, p.age[0]),
			append(age1, p.age[1])
		worst, ageRatio = append(worst, p.worst), append(ageRatio, p.age[1]/p.age[0])
	}
	name := fmt.Sprintf("%d cameras, MJPEG %dx%d at %d fps, 1 killed, 1 stalled: the other %d, ", watchedCameras,
		smallW, smallH, watchedFPS, watchedCameras-2)
	b.add(Row{Name: name + "answers", Unit: "frames/s", Bare: median(fps0), Millrace: median(fps1),
		Ratio: median(fps1) / median(fps0)})
	b.add(Row{Name: name + "the worst of them", Unit: "of its fps", Bare: 1, Millrace: median(worst),
		Ratio: median(worst)}.atLeast(0.95))
	b.add(Row{Name: name + "p99 age of an answer", Unit: "ms", Bare: median(age0), Millrace: median(age1),
		Ratio: median(ageRatio)}.atMost(1.5))
}
