package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"millrace/client/play"
	"millrace/internal/recording"
	"millrace/stream"
)

const replayExamples = `  millrace replay monday.mill --model spotter
  millrace replay monday.mill --model spotter-v2 --realtime=false --out v2.mill
  millrace replay monday.mill --model spotter --version 3 --policy latest --max-age-ms 200 --json`

// replaySummary is the summary of a replay.
type replaySummary struct {
	play.Summary
	File  string `json:"file,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
}

func replayCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "replay FILE.mill",
		Short: "Send the frames of a recording to a model",
		Long: `Send the frames of a recording of millrace record to a model of a running server: the same bytes, at the recorded intervals,
or with --realtime=false as fast as the server answers. With --out the answers are recorded, for millrace compare. By default
every frame is answered (--policy every).`,
		Example: replayExamples,
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
	f.StringVar(&file, "out", "", "record the answers in this file, which must not exist")
	f.BoolVar(&realtime, "realtime", true, "send frames at the recorded intervals; false = as fast as the server "+
		"answers")
	f.DurationVar(&o.Limit, "duration", 0, "how much of the recording to send, such as 10s (all)")
	f.StringVar(&policy, "policy", string(stream.Every), "latest or every")
	f.IntVar(&maxAge, "max-age-ms", 0, "drop frames that would be older than this when answered (the model's setting)")
	f.IntVar(&o.Window, "window", 8, "the most frames in flight, with --policy every")
	f.BoolVar(&asJSON, "json", false, "the summary as JSON on standard output, progress on standard error")
	c.RunE = func(c *cobra.Command, args []string) error {
		o.Source, o.Fast = args[0], !realtime
		o.Policy.Mode, o.Policy.MaxAge = stream.Mode(policy), milliseconds(maxAge)
		if err := checkStream(f, &o); err != nil {
			return err
		}
		if o.Window < 1 || o.Window > 1<<16 {
			return usagef("--window: %d is not between 1 and %d", o.Window, 1<<16)
		}
		if o.Policy.Mode != stream.Every {
			if err := without(f, "with --policy latest, which replaces older frames by newer ones",
				"window"); err != nil {
				return err
			}
			o.Window = 0 // the server drops older frames in favour of newer frames
		}
		src, err := recording.Open(args[0])
		if err != nil {
			return err
		}
		defer func() { _ = src.Close() }()
		if err := src.Cut(); err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "millrace: %s: %v\n", args[0], err)
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
		frames := &frameSource{src: src}
		if err := frames.configure(&o); err != nil {
			return err
		}
		ctx, rec := c.Context(), (*recorder)(nil)
		if file != "" {
			h := recording.Header{Model: o.Model, Version: o.Version, Source: o.Source, Codec: o.Codec,
				Options: optionsOf(o.Policy)}
			if rec, ctx, err = newRecorder(ctx, file, h); err != nil {
				return err
			}
			o.OnSend = func(uint64, time.Duration, []byte) { rec.frame(frames.current()) }
			o.OnReply = func(r play.Reply) { rec.reply(frames.seq(r.Seq), &r.Reply) }
		}
		o.OnSecond = func(p play.Progress) {
			if rec != nil {
				rec.flush()
			}
			lines.line(progressText(p))
		}
		s, err := play.Run(ctx, o)
		lines.end()
		err = withFlagNames(suggestModel(c.Context(), cl, o.Model, err))
		r, rows := replaySummary{Summary: s}, summaryRows(&s)
		if rec != nil {
			err = firstOf(rec.close(), err)
			r.File, r.Bytes = file, rec.w.Size()
			rows = append(rows, rec.row())
		}
		if err != nil && s.Frames == 0 {
			return err
		}
		if asJSON {
			return firstOf(err, writeJSON(out, r))
		}
		return firstOf(err, table(out, rows...))
	}
	return c
}

// frameSource returns the frames of a recording in order.
type frameSource struct {
	src   *recording.Reader
	next  int              // index of the next frame
	first time.Duration    // time of the first frame
	last  *recording.Frame // the last frame returned
}

// configure sets the recording as the source of o, with the codec of the frames.
func (r *frameSource) configure(o *play.Options) error {
	o.Next = r.frame
	if c := r.src.Header().Codec; c != "auto" {
		o.Codec = c
	}
	if r.src.Frames() == 0 {
		return fmt.Errorf("%s has no frames", o.Source)
	}
	first, err := r.src.Frame(r.src.Seq(0))
	if err != nil {
		return err
	}
	r.first = first.At
	o.Width, o.Height = first.Width, first.Height
	return nil
}

func (r *frameSource) frame() ([]byte, time.Duration, error) {
	if r.next == r.src.Frames() {
		return nil, 0, io.EOF
	}
	f, err := r.src.Frame(r.src.Seq(r.next))
	if err != nil {
		return nil, 0, err
	}
	r.next++
	r.last = f
	return f.Payload, f.At - r.first, nil
}

// current returns a copy of the last frame returned by frame, for recording with another time.
func (r *frameSource) current() *recording.Frame {
	f := *r.last
	return &f
}

// seq returns the number in the recording of the frame sent as number n.
func (r *frameSource) seq(n uint64) uint64 { return r.src.Seq(int(n)) }
