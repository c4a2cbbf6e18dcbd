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
	"millrace/stream/coded"
)

const demoExamples = `  millrace demo
  millrace demo --out /tmp/demo --json
  millrace demo --serve`

const demoLong = `Start a server on this machine with a small model of Millrace's own that finds and reads handwritten digits, send it a
clip over WebSocket in real time, compare the results with the digits that the clip contains (a match has an IoU of at
least 0.5 and the same digit), and write the clip with the results drawn over it. The program contains the model and the
clip, and writes them to the cache folder. It needs ffmpeg and ONNX Runtime's library (make onnxruntime).`

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
		Short:   "Read the digits in a clip, and compare the results with the ground truth",
		Long:    demoLong,
		Example: demoExamples,
		Args:    wrongUsage(cobra.NoArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return d.run(c) },
	}
	f := c.Flags()
	f.StringVar(&d.http, "http", "", "address of the server; port 0 = a free port (with --serve 127.0.0.1:8000 "+
		"if the port is free, else a free port)")
	f.StringVar(&d.out, "out", filepath.Join("out", "demo"), "folder for the overlay's clip and picture")
	f.BoolVar(&d.serve, "serve", false, "keep the server running until Ctrl-C, with its console and a server stream "+
		"of the clip")
	f.BoolVar(&d.json, "json", false, "the summary as JSON on standard output, progress on standard error")
	return c
}

func (d *demo) run(c *cobra.Command) error {
	ctx, out := c.Context(), c.OutOrStdout()
	progress := out
	if d.json {
		progress = c.ErrOrStderr()
	}
	if d.http == server.Off {
		return usagef("--http: is off, and the demo needs it: leave it out for an address that is free")
	}
	ex, err := newExample()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := os.MkdirAll(d.out, 0o755); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	s, stop, err := d.start(ctx, ex)
	if err != nil {
		return err
	}
	if d.serve {
		_, _ = fmt.Fprintln(progress, readyLine(s))
	}
	summary, err := d.play(ctx, progress, s, ex)
	if err == nil {
		err = summary.write(out, d.json)
	}
	if err == nil && d.serve && ctx.Err() == nil {
		err = d.keepServing(ctx, progress, s, ex)
	}
	if err := firstOf(err, stop()); err != nil {
		return err
	}
	if summary.Hits == 0 && ctx.Err() == nil {
		return errors.New("demo: no digit was found in the clip")
	}
	return nil
}

// keepServing starts the server stream of the clip, and waits for the end of ctx.
func (d *demo) keepServing(ctx context.Context, progress io.Writer, s *server.Server, ex *example) error {
	cl, err := client.New(s.Addr("http"))
	if err != nil {
		return err
	}
	defer cl.Close()
	if _, err := setPaused(false)(cl, ctx, ex.stream); err != nil {
		return err
	}
	at := s.Addr("http")
	_, _ = fmt.Fprintf(progress, "\nThe console is at http://%s/console/ until Ctrl-C. Open it and choose the clip "+
		"or your camera.\n"+
		"A server stream repeats the clip: see http://%s/v2/streams/%s/video, and millrace streams --addr %s\n"+
		"From another terminal: millrace stream YOUR.mp4 --model %s --addr %s --overlay seen.mp4\n", at, at, ex.stream,
		at, ex.model, at)
	<-ctx.Done()
	return nil
}

// address returns the address of the demo's server.
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

// start runs a server with the models of the example.
func (d *demo) start(ctx context.Context, ex *example) (s *server.Server, stop func() error, err error) {
	cfg := server.Config{}
	cfg.HTTP, cfg.GRPC, cfg.Version, cfg.Log.Level = d.address(), server.Off, version, "warn"
	if len(server.Exposed(ctx, cfg)) > 0 {
		return nil, nil, fmt.Errorf("--http: %s can be reached from other machines, and the demo lets everybody in: "+
			"leave it out, or use millrace serve with --auth-keys", cfg.HTTP)
	}
	if err := ex.configure(&cfg); err != nil {
		return nil, nil, err
	}
	if d.serve {
		cfg.Streams = append(cfg.Streams, ex.serverStream())
	}
	if s, err = server.New(cfg); err != nil {
		return nil, nil, coded.Rename(err, map[string]string{"http": "--http"})
	}
	// The server ends after ctx, so that the summary of an interrupted demo is complete.
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

// demoSummary is the summary of the demo, with the comparison with the ground truth.
type demoSummary struct {
	play.Summary
	Judged    int     `json:"judged_frames"`
	Hits      int     `json:"found"`
	Missed    int     `json:"missed"`
	False     int     `json:"false"`
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
}

// play streams the clip in real time, and compares the results with the ground truth.
func (d *demo) play(ctx context.Context, progress io.Writer, s *server.Server, ex *example) (demoSummary, error) {
	cl, err := client.New(s.Addr("http"))
	if err != nil {
		return demoSummary{}, err
	}
	defer cl.Close()
	e := evaluation{truth: ex.truth}
	lines := newProgress(progress)
	sum, err := play.Run(ctx, play.Options{
		Client: cl, Model: ex.model, Source: ex.clip,
		Overlay: filepath.Join(d.out, "overlay.mp4"), Picture: filepath.Join(d.out, "overlay.png"),
		OnReply:  e.reply,
		OnSecond: func(p play.Progress) { lines.line(progressText(p) + "  digits " + e.digits()) },
	})
	lines.end()
	return demoSummary{sum, e.frames, e.score.Hits, e.score.Missed, e.score.False, e.score.Precision(),
		e.score.Recall()}, err
}

func (s *demoSummary) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return writeJSON(w, s)
	}
	rows := append(summaryRows(&s.Summary),
		[]string{"found", fmt.Sprintf("%d of %d digits in %d frames", s.Hits, s.Hits+s.Missed, s.Judged)},
		[]string{"precision, recall", fmt.Sprintf("%.2f, %.2f", s.Precision, s.Recall)})
	return table(w, rows...)
}
