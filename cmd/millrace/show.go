package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"millrace/client/overlay"
	"millrace/client/play"
	"millrace/internal/clip"
	"millrace/internal/clip/truth"
	"millrace/server"
)

const (
	demoShort = "Find what moves in a rendered clip, and judge it against the truth"
	demoLong  = `Render a clip of moving shapes (kept in the cache folder), start a server on this machine, send it the clip over
WebSocket as a camera would, compare the boxes that come back with where the shapes really are, and write the clip with
the boxes drawn over it.`
	things = "moving things"
	// learning is how much of the clip the detector is given before it is judged.
	learning = time.Second
)

// show is what the demo shows: a clip, the model that watches it, and the truth.
type show struct {
	model string
	file  string // of the clip
	truth *truth.Truth
}

// newShow renders the clip, unless it is in the cache folder.
func newShow(ctx context.Context, told io.Writer) (*show, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	set := clip.Settings{Width: 640, Height: 480, Seconds: 10, FPS: 30, Seed: 1}
	dir := filepath.Join(cache, "millrace", fmt.Sprintf("clip1-%dx%d-%dfps-%gs", set.Width, set.Height, set.FPS, set.Seconds))
	file := filepath.Join(dir, "motion.mp4")
	if _, err := os.Stat(file); err != nil {
		_, _ = fmt.Fprintf(told, "rendering %g s of moving shapes to %s\n", set.Seconds, dir)
		if file, err = clip.Write(ctx, set, "ffmpeg", dir, io.Discard); err != nil {
			return nil, fmt.Errorf("the clip cannot be rendered: %w", err)
		}
	}
	t, err := truth.Load(filepath.Join(dir, "motion.json"))
	return &show{model: "motion", file: file, truth: t}, err
}

func (s *show) configure(cfg *server.Config) error { return cfg.AddModels("motion=motion") }

// judge compares what comes back with the truth.
type judge struct {
	truth  *truth.Truth
	score  truth.Score
	frames int

	mu    sync.Mutex
	boxes []overlay.Box // of the newest result
}

// reply takes one ending, from one goroutine.
func (j *judge) reply(r play.Reply) {
	if !r.Answered() || r.Partial {
		return
	}
	found, err := overlay.Items(r.Outputs)
	if err != nil {
		return // counts as if nothing had been found
	}
	if r.Width > 0 && r.Height > 0 { // the truth is about the clip's own size
		found = found.Scale(float64(j.truth.Width)/float64(r.Width), float64(j.truth.Height)/float64(r.Height))
	}
	j.mu.Lock()
	j.boxes = found.Boxes
	j.mu.Unlock()
	at := j.truth.At(r.PTS.Seconds())
	if at == nil || r.PTS < learning {
		return
	}
	var boxes []truth.Box
	for _, b := range found.Boxes {
		boxes = append(boxes, truth.Box{b.X1, b.Y1, b.X2, b.Y2})
	}
	j.score.Add(at, boxes)
	j.frames++
}

// seen names what the newest result has, "3 7 7".
func (j *judge) seen() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var names []string
	for _, b := range j.boxes {
		if b.Number >= 0 {
			names = append(names, fmt.Sprint(b.Number))
		}
	}
	if len(names) == 0 {
		return fmt.Sprintf("%d %s", len(j.boxes), things)
	}
	return strings.Join(names, " ")
}
