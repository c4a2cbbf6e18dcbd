package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/client/play"
	"millrace/server"
)

const demoExamples = `  millrace demo
  millrace demo --out /tmp/demo --json
  millrace demo --serve`

const demoLong = `Start a server on this machine with a small model of Millrace's own that finds and reads handwritten digits, send it a
clip over WebSocket as a camera would, compare the answers with what is really in the clip (IoU of at least 0.5, and the
right digit), and write the clip with the answers drawn over it. Model and clip are part of the program; they are put
into the cache folder. It needs ffmpeg and ONNX Runtime's library (make onnxruntime).`

type demo struct {
	http  string
	out   string
	serve bool
	json  bool
}

func demoCommand() *cobra.Command {
	var d demo
	c := &cobra.Command{
		Use:     "demo",
		Short:   "Read the digits in a clip, and judge it against the truth",
		Long:    demoLong,
		Example: demoExamples,
		Args:    wrongUsage(cobra.NoArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return d.run(c) },
	}
	f := c.Flags()
	f.StringVar(&d.http, "http", "", "address of the server; port 0 takes a free one (with --serve 127.0.0.1:8000 if that is free, else a free one)")
	f.StringVar(&d.out, "out", filepath.Join("out", "demo"), "folder for the overlay's clip and picture")
	f.BoolVar(&d.serve, "serve", false, "leave the server running until Ctrl-C, with its console, and have it go on with the clip as a stream of its own")
	f.BoolVar(&d.json, "json", false, "the summary as JSON on standard output, progress on standard error")
	return c
}

func (d *demo) run(c *cobra.Command) error {
	ctx, out := c.Context(), c.OutOrStdout()
	told := out
	if d.json {
		told = c.ErrOrStderr()
	}
	show, err := newShow()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := os.MkdirAll(d.out, 0o755); err != nil {
		return fmt.Errorf("demo: --out: %w", err)
	}
	s, stop, err := d.start(ctx, show)
	if err != nil {
		return err
	}
	if d.serve {
		_, _ = fmt.Fprintln(told, addresses(s))
	}
	got, err := d.play(ctx, told, s, show)
	if err == nil {
		err = got.write(out, d.json)
	}
	if err == nil && d.serve && ctx.Err() == nil {
		err = d.goOn(ctx, told, s, show)
	}
	if err := firstOf(err, stop()); err != nil {
		return err
	}
	if got.Hits == 0 && ctx.Err() == nil {
		return errors.New("demo: no digit was found in the clip")
	}
	return nil
}

// goOn leaves the server running, which plays the clip over and over.
func (d *demo) goOn(ctx context.Context, told io.Writer, s *server.Server, show *show) error {
	cl, err := client.New(s.Addr("http"))
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := pausing(false)(cl, ctx, show.stream); err != nil {
		return err
	}
	at := s.Addr("http")
	_, _ = fmt.Fprintf(told, "\nThe console is at http://%s/console/ until Ctrl-C. Open it and choose the clip or your camera.\n"+
		"The server goes on with the clip by itself: see http://%s/v2/streams/%s/video, and millrace streams --addr %s\n"+
		"From another terminal: millrace stream YOUR.mp4 --model %s --addr %s --overlay seen.mp4\n", at, at, show.stream, at, show.model, at)
	<-ctx.Done()
	return nil
}

// address is where the demo's server listens.
func (d *demo) address() string {
	const free = "127.0.0.1:0"
	switch {
	case d.http != "":
		return d.http
	case !d.serve:
		return free
	}
	l, err := net.Listen("tcp", defaultAddr)
	if err != nil {
		return free
	}
	_ = l.Close()
	return defaultAddr
}

// start runs a server with the show's models.
func (d *demo) start(ctx context.Context, show *show) (s *server.Server, stop func() error, err error) {
	cfg := server.Config{}
	cfg.HTTP, cfg.GRPC, cfg.Version, cfg.Log.Level = d.address(), server.Off, version, "warn"
	if err := show.configure(&cfg); err != nil {
		return nil, nil, err
	}
	if d.serve {
		cfg.Streams = append(cfg.Streams, show.looped())
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
	Missed    int     `json:"missed"`
	False     int     `json:"false"`
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
}

// play streams the clip as a camera would, and judges what comes back.
func (d *demo) play(ctx context.Context, told io.Writer, s *server.Server, show *show) (judged, error) {
	cl, err := client.New(s.Addr("http"))
	if err != nil {
		return judged{}, err
	}
	defer cl.Close()
	j := judge{truth: show.truth}
	lines := newProgress(told)
	sum, err := play.Run(ctx, play.Options{
		Client: cl, Model: show.model, Source: show.file,
		Overlay: filepath.Join(d.out, "overlay.mp4"), Picture: filepath.Join(d.out, "overlay.png"),
		OnReply:  j.reply,
		OnSecond: func(p play.Progress) { lines.line(second(p) + "  sees " + j.seen()) },
	})
	lines.end()
	return judged{sum, j.frames, j.score.Hits, j.score.Missed, j.score.False, j.score.Precision(), j.score.Recall()}, err
}

func (j *judged) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return writeJSON(w, j)
	}
	rows := append(summaryRows(&j.Summary),
		[]string{"found", fmt.Sprintf("%d of %d digits in %d frames", j.Hits, j.Hits+j.Missed, j.Judged)},
		[]string{"precision, recall", fmt.Sprintf("%.2f, %.2f", j.Precision, j.Recall)})
	return table(w, rows...)
}
