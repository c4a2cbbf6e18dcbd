package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/client/play"
	"millrace/internal/clip"
	"millrace/internal/clip/truth"
	"millrace/server"
)

const demoExamples = `  millrace demo
  millrace demo --seconds 30 --json
  millrace demo --serve --http 127.0.0.1:8000`

// learning is how much of the clip the detector is given before it is judged.
const learning = time.Second

type demo struct {
	http    string
	seconds float64
	serve   bool
	json    bool
}

func demoCommand() *cobra.Command {
	var d demo
	c := &cobra.Command{
		Use:   "demo",
		Short: "Find what moves in a rendered clip, and judge it against the truth",
		Long: `Render a clip of moving shapes (kept in the cache folder), start a server on this machine, send it the clip over
WebSocket as a camera would, and compare the boxes that come back with where the shapes really are.`,
		Example: demoExamples,
		Args:    wrongUsage(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if !(d.seconds >= 1.5 && d.seconds <= 600) {
				return usagef("--seconds: %v is not between 1.5 and 600", d.seconds)
			}
			return d.run(c)
		},
	}
	f := c.Flags()
	f.StringVar(&d.http, "http", "127.0.0.1:0", "address of the server; port 0 takes a free one")
	f.Float64Var(&d.seconds, "seconds", 10, "length of the clip")
	f.BoolVar(&d.serve, "serve", false, "leave the server running until Ctrl-C")
	f.BoolVar(&d.json, "json", false, "the summary as JSON on standard output, progress on standard error")
	return c
}

func (d *demo) run(c *cobra.Command) error {
	ctx, out := c.Context(), c.OutOrStdout()
	told := out
	if d.json {
		told = c.ErrOrStderr()
	}
	file, t, err := d.clip(ctx, told)
	if err != nil {
		return err
	}
	s, stop, err := d.start(ctx)
	if err != nil {
		return err
	}
	if d.serve {
		_, _ = fmt.Fprintln(told, addresses(s))
	}
	got, err := d.play(ctx, told, s, file, t)
	if err == nil {
		err = got.write(out, d.json)
	}
	if err == nil && d.serve && ctx.Err() == nil {
		_, _ = fmt.Fprintf(told, "\nthe server goes on at http://%s until Ctrl-C; try:\n  millrace stream %s --model motion --addr %s\n", s.HTTPAddr(), file, s.HTTPAddr())
		<-ctx.Done()
	}
	if err := firstOf(err, stop()); err != nil {
		return err
	}
	if got.Hits == 0 && ctx.Err() == nil {
		return errors.New("demo: nothing that moves was found")
	}
	return nil
}

// clip renders the clip, unless it is in the cache folder.
func (d *demo) clip(ctx context.Context, told io.Writer) (file string, t *truth.Truth, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	set := clip.Settings{Width: 640, Height: 480, Seconds: d.seconds, FPS: 30, Seed: 1}
	dir := filepath.Join(cache, "millrace", fmt.Sprintf("clip1-%dx%d-%dfps-%gs", set.Width, set.Height, set.FPS, set.Seconds))
	file = filepath.Join(dir, "motion.mp4")
	if _, err := os.Stat(file); err != nil {
		_, _ = fmt.Fprintf(told, "rendering %g s of moving shapes to %s\n", d.seconds, dir)
		if file, err = clip.Write(ctx, set, "ffmpeg", dir, io.Discard); err != nil {
			return "", nil, fmt.Errorf("demo: the clip cannot be rendered: %w", err)
		}
	}
	t, err = truth.Load(filepath.Join(dir, "motion.json"))
	return file, t, err
}

// start runs a server with the motion detector.
func (d *demo) start(ctx context.Context) (s *server.Server, stop func() error, err error) {
	cfg := server.Defaults()
	cfg.HTTP, cfg.GRPC, cfg.Version, cfg.Log.Level = d.http, server.Off, version, "warn"
	if err := cfg.AddModels("motion=motion"); err != nil {
		return nil, nil, err
	}
	if s, err = server.New(cfg); err != nil {
		return nil, nil, err
	}
	// The server outlives ctx, so that the summary of an interrupted demo is whole.
	run, end := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- s.Run(run) }() // ends with stop
	stop = func() error { end(); return <-done }
	select {
	case <-s.Ready():
		return s, stop, nil
	case err := <-done:
		end()
		return nil, nil, err
	}
}

// judged is the summary with the verdict.
type judged struct {
	play.Summary
	Judged    int     `json:"judged_frames"`
	Hits      int     `json:"found"`
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
}

// play streams the clip and judges what comes back.
func (d *demo) play(ctx context.Context, told io.Writer, s *server.Server, file string, t *truth.Truth) (judged, error) {
	cl, err := client.New(s.HTTPAddr().String())
	if err != nil {
		return judged{}, err
	}
	defer cl.Close()
	var (
		score  truth.Score
		frames int
		boxes  atomic.Int64 // of the last frame
	)
	lines := newProgress(told)
	sum, err := play.Run(ctx, play.Options{
		Client: cl, Model: "motion", Source: file,
		OnReply: func(r play.Reply) {
			if !r.Answered() {
				return
			}
			found := boxesOf(&r, t.Width)
			boxes.Store(int64(len(found)))
			if at := t.At(r.PTS.Seconds()); at != nil && r.PTS >= learning {
				score.Add(at, found)
				frames++
			}
		},
		OnSecond: func(p play.Progress) { lines.line(fmt.Sprintf("%s  %d things move", second(p), boxes.Load())) },
	})
	lines.end()
	return judged{sum, frames, score.Hits, score.Precision(), score.Recall()}, err
}

// boxesOf reads the boxes of a result, in pixels of the clip.
func boxesOf(r *play.Reply, width int) (found []truth.Box) {
	scale := 1.0
	if r.Width > 0 {
		scale = float64(width) / float64(r.Width)
	}
	for i := range r.Outputs {
		t := &r.Outputs[i]
		if t.Name != "boxes" {
			continue
		}
		v := t.Float32s()
		for ; len(v) >= 4; v = v[4:] {
			found = append(found, truth.Box{float64(v[0]) * scale, float64(v[1]) * scale, float64(v[2]) * scale, float64(v[3]) * scale})
		}
	}
	return found
}

func (j *judged) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return writeJSON(w, j)
	}
	rows := append(summaryRows(&j.Summary),
		[]string{"found", fmt.Sprintf("%d moving things in %d judged frames", j.Hits, j.Judged)},
		[]string{"precision, recall", fmt.Sprintf("%.2f, %.2f", j.Precision, j.Recall)})
	return table(w, rows...)
}
