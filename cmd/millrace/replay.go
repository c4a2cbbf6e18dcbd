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

// replayed is the account of a replay.
type replayed struct {
	play.Summary
	File  string `json:"file,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
}

func replayCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "replay FILE.mill",
		Short: "Play a recording to a model, the very same frames again",
		Long: `Play a recording of millrace record to a model of a running server: the same frames byte for byte, with the spacing in
which they were recorded, or with --realtime=false as fast as they are answered. With --out the answers are recorded, for
millrace compare. Every frame is computed (--policy every), unless something else is asked for.`,
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
	f.StringVar(&o.Model, "model", "", "the model (needed)")
	f.StringVar(&o.Version, "version", "", "of the model (any)")
	f.StringVar(&file, "out", "", "record the answers in this file, which must not exist")
	f.BoolVar(&realtime, "realtime", true, "frames with the recorded spacing; false = as fast as they are answered")
	f.DurationVar(&o.Limit, "duration", 0, "of the recording to play, such as 10s (all)")
	f.StringVar(&policy, "policy", string(stream.Every), "latest or every")
	f.IntVar(&maxAge, "max-age-ms", 0, "a frame that would be answered older is dropped (the model's)")
	f.IntVar(&o.Window, "window", 8, "frames on their way at once, with --policy every")
	f.BoolVar(&asJSON, "json", false, "the summary as JSON on standard output, progress on standard error")
	c.RunE = func(c *cobra.Command, args []string) error {
		o.Source, o.Fast = args[0], !realtime
		o.Policy.Mode, o.Policy.MaxAge = stream.Mode(policy), time.Duration(maxAge)*time.Millisecond
		if err := checkStream(&o); err != nil {
			return err
		}
		if o.Window < 1 || o.Window > 1<<16 {
			return usagef("--window: %d is not between 1 and %d", o.Window, 1<<16)
		}
		if o.Policy.Mode != stream.Every {
			o.Window = 0 // older frames give way to newer ones
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
		reel := &reel{src: src}
		if err := reel.load(&o); err != nil {
			return err
		}
		ctx, rec := c.Context(), (*recorder)(nil)
		if file != "" {
			h := recording.Header{Model: o.Model, Version: o.Version, Source: o.Source, Codec: o.Codec, Options: optionsOf(o.Policy)}
			if rec, ctx, err = newRecorder(ctx, file, h); err != nil {
				return err
			}
			o.OnSend = func(uint64, time.Duration, []byte) { rec.frame(reel.current()) }
			o.OnReply = func(r play.Reply) { rec.reply(reel.seq(r.Seq), &r.Reply) }
		}
		o.OnSecond = func(p play.Progress) {
			if rec != nil {
				rec.flush()
			}
			lines.line(second(p))
		}
		s, err := play.Run(ctx, o)
		lines.end()
		r, rows := replayed{Summary: s}, summaryRows(&s)
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

// reel gives the frames of a recording one after the other.
type reel struct {
	src *recording.Reader
	at  int           // of the next frame
	t0  time.Duration // of the first one
	cur *recording.Frame
}

// load has o play the reel: its frames, in the codec that they were sent in.
func (r *reel) load(o *play.Options) error {
	o.Next = r.next
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
	r.t0 = first.At
	o.Width, o.Height = first.Width, first.Height
	return nil
}

func (r *reel) next() ([]byte, time.Duration, error) {
	if r.at == r.src.Frames() {
		return nil, 0, io.EOF
	}
	f, err := r.src.Frame(r.src.Seq(r.at))
	if err != nil {
		return nil, 0, err
	}
	r.at++
	r.cur = f
	return f.Payload, f.At - r.t0, nil
}

// current is a copy of the frame that next gave last, to be recorded at another
// time.
func (r *reel) current() *recording.Frame {
	f := *r.cur
	return &f
}

// seq is what the frame that was sent as number n is called in the recording.
func (r *reel) seq(n uint64) uint64 { return r.src.Seq(int(n)) }
