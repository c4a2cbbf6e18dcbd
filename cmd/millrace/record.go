package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/client/play"
	"millrace/internal/codec"
	"millrace/internal/oip"
	"millrace/internal/recording"
	"millrace/stream"
)

const recordExamples = `  millrace record clip.mp4 --model spotter --out monday.mill
  millrace record rtsp://camera.local/live --model spotter --duration 10m --out monday.mill
  millrace record clip.mp4 --model spotter --policy every --realtime=false --out all.mill --json`

// recordSummary is the summary of a recording.
type recordSummary struct {
	play.Summary
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

func recordCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "record FILE|URL",
		Short: "Send a video to a model, and record every frame and every result in a file",
		Long: `Send a video to a model of a running server, as millrace stream does, and record the stream: the bytes of each frame, the time
of sending, and the ending with the results. millrace replay sends the frames of the file to another model, and
millrace compare reports how the results differ. When this program is killed, the file lacks at most the last second.`,
		Example: recordExamples,
		Args:    wrongUsage(cobra.ExactArgs(1)),
	}
	host := remoteFlags(c)
	f := c.Flags()
	var (
		o        play.Options
		file     string
		policy   string
		maxAge   int
		realtime bool
		asJSON   bool
	)
	f.StringVar(&o.Model, "model", "", "the model (required)")
	f.StringVar(&o.Version, "version", "", "version of the model (any)")
	f.StringVar(&file, "out", "", "the file to write, such as monday.mill; it must not exist (required)")
	f.Float64Var(&o.FPS, "fps", 0, "the most frames to send per second (all)")
	f.BoolVar(&realtime, "realtime", true, "send files at their own speed; false = as fast as they are read")
	f.BoolVar(&o.Loop, "loop", false, "start a file again at its end")
	f.DurationVar(&o.Limit, "duration", 0, "how much of the video to send, such as 10s (all)")
	f.IntVar(&o.Width, "width", 0, "width of the frames that are sent, in pixels (as the model needs)")
	f.IntVar(&o.Height, "height", 0, "height of the frames that are sent, in pixels (as the model needs)")
	f.StringVar(&policy, "policy", "", "latest or every (the model's)")
	f.IntVar(&maxAge, "max-age-ms", 0, "drop frames that would be older than this when answered (the model's setting)")
	f.BoolVar(&asJSON, "json", false, "the summary as JSON on standard output, progress on standard error")
	c.RunE = func(c *cobra.Command, args []string) error {
		o.Source, o.Fast = args[0], !realtime
		o.Policy = stream.Policy{Mode: stream.Mode(policy), MaxAge: milliseconds(maxAge)}
		if err := checkStream(f, &o); err != nil {
			return err
		}
		if file == "" {
			return usagef("--out is missing: the file to write, such as monday.mill")
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		o.Client = cl
		out := c.OutOrStdout()
		lines := newProgress(out)
		if asJSON {
			lines = newProgress(c.ErrOrStderr())
		}
		rec, ctx, err := newRecorder(c.Context(), file, recording.Header{Model: o.Model, Version: o.Version,
			Source: o.Source, Options: optionsOf(o.Policy)})
		if err != nil {
			return err
		}
		o.OnSend = func(seq uint64, pts time.Duration, frame []byte) {
			rec.frame(&recording.Frame{Seq: seq, CaptureUS: pts.Microseconds(), Payload: frame})
		}
		o.OnReply = func(r play.Reply) { rec.reply(r.Seq, &r.Reply) }
		o.OnSecond = func(p play.Progress) {
			rec.flush()
			lines.line(progressText(p))
		}
		s, err := play.Run(ctx, o)
		lines.end()
		err = firstOf(rec.close(), withFlagNames(suggestModel(c.Context(), cl, o.Model, err)))
		if err != nil && s.Frames == 0 {
			return err
		}
		r := recordSummary{Summary: s, File: file, Bytes: rec.w.Size()}
		if asJSON {
			return firstOf(err, writeJSON(out, r))
		}
		return firstOf(err, table(out, append(summaryRows(&s), rec.row())...))
	}
	return c
}

// optionsOf returns a policy as the options of a stream request.
func optionsOf(p stream.Policy) map[string]string {
	opts := map[string]string{}
	if p.Mode != "" {
		opts["policy"] = string(p.Mode)
	}
	if p.MaxAge > 0 {
		opts["max_age_ms"] = fmt.Sprint(p.MaxAge.Milliseconds())
	}
	if p.Window > 0 {
		opts["window"] = fmt.Sprint(p.Window)
	}
	return opts
}

// recorder writes a recording while a stream runs. The recorder's first error cancels the context returned by
// newRecorder.
type recorder struct {
	w       *recording.Writer
	file    string
	started time.Time
	cancel  context.CancelFunc

	mu  sync.Mutex
	err error
}

// newRecorder creates the file. Times in the file count from now.
func newRecorder(ctx context.Context, file string, h recording.Header) (*recorder, context.Context, error) {
	h.Started = time.Now()
	w, err := recording.Create(file, h)
	if err != nil {
		return nil, nil, fmt.Errorf("--out: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	return &recorder{w: w, file: file, started: h.Started, cancel: cancel}, ctx, nil
}

// frame records a frame sent now. An unknown codec or size of a picture is read from the picture's header.
func (t *recorder) frame(f *recording.Frame) {
	f.At = time.Since(t.started)
	if f.Codec == "" {
		if info, err := codec.Header(f.Payload); err == nil {
			f.Codec = info.Kind.String()
			f.Width, f.Height = info.Upright()
		}
	}
	t.fail(t.w.Frame(f))
}

// reply records an ending, with the frame's seq in the file.
func (t *recorder) reply(seq uint64, r *client.Reply) {
	e := &recording.Ending{
		Seq: seq, At: r.Got.Sub(t.started), Outcome: recording.Result, Partial: r.Partial, Model: r.Model,
		Width: r.Width, Height: r.Height, Batch: r.Batch,
		Timing: recording.Timing{
			Queue: r.Timing.Queue.Microseconds(), Prepare: r.Timing.Prepare.Microseconds(),
			Run: r.Timing.Run.Microseconds(), Total: r.Timing.Total.Microseconds(),
		},
	}
	if !r.Timing.Received.IsZero() {
		e.Timing.Received = r.Timing.Received.UnixMicro()
	}
	switch {
	case r.Dropped != "":
		e.Outcome, e.Reason = recording.Drop, string(r.Dropped)
	case r.Err != nil:
		e.Outcome, e.Code, e.Message = recording.Failed, string(stream.CodeOf(r.Err)), r.Err.Error()
	}
	for _, o := range r.Outputs {
		e.Outputs = append(e.Outputs, oip.Tensor{Name: o.Name, Datatype: string(o.Datatype), Shape: o.Shape,
			Data: o.Data})
	}
	for k, v := range r.Params {
		if p, ok := oip.ParamOf(k, v); ok {
			e.Params = append(e.Params, p)
		}
	}
	t.fail(t.w.Ending(e))
}

func (t *recorder) flush() { t.fail(t.w.Flush()) }

// fail keeps the first error, and cancels the context.
func (t *recorder) fail(err error) {
	if err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
		t.cancel()
	}
}

// close ends the file, and returns the first error of writing. A file without frames is removed.
func (t *recorder) close() error {
	t.cancel()
	t.fail(t.w.Close())
	if t.w.Frames() == 0 {
		t.fail(os.Remove(t.file))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// row describes the file, as a row of a table.
func (t *recorder) row() []string {
	return []string{"recording", fmt.Sprintf("%s: %d frames, %.1f MB", t.file, t.w.Frames(), float64(t.w.Size())/1e6)}
}
