package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"millrace/client/load"
)

const benchExamples = `  millrace bench --model identity --streams 32 --window 8 --size 30000
  millrace bench --model motion --file frame.jpg --streams 10 --rate 30 --option policy=latest --deadline 100ms
  millrace bench --model identity --protocol rest --streams 16 --json`

func benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Put load on a running server, and tell what came of it",
		Long: `Put load on a running server over WebSocket or REST. Without --rate the loop is closed: each stream keeps --window frames
on their way, which measures capacity. With --rate it is open: frames are due at that rate whatever the server does, and
every time is counted from the moment a frame was due. The exit status is 1 when a frame ended never or twice.`,
		Example: benchExamples,
		Args:    wrongUsage(cobra.NoArgs),
	}
	f := c.Flags()
	var (
		cfg             load.Config
		options, header []string
		asJSON          bool
		csv             string
	)
	host := remoteFlags(c)
	f.StringVar(&cfg.URL, "url", "", "address of the server with its scheme, in place of --addr")
	f.StringVar(&cfg.Protocol, "protocol", load.WebSocketProtocol, "ws, v1 (millrace.v1) or rest")
	f.StringVar(&cfg.Model, "model", "", "the model (needed)")
	f.StringArrayVar(&options, "option", nil, "key=value: an option of the stream or request, such as policy=latest; may be repeated (outputs=binary)")
	f.StringArrayVar(&header, "header", nil, "name=value: a header of each request; may be repeated")
	f.BoolVar(&cfg.Tensor, "tensor", false, "over REST: the payload is the bytes of one tensor")
	f.IntVar(&cfg.Streams, "streams", 1, "open at once")
	f.Float64Var(&cfg.Rate, "rate", 0, "frames a second of each stream (closed loop)")
	f.BoolVar(&cfg.Poisson, "poisson", false, "open loop with random gaps instead of even ones")
	f.IntVar(&cfg.Burst, "burst", 1, "open loop: frames that are due at the same moment")
	f.IntVar(&cfg.Window, "window", 1, "closed loop: frames on their way on each stream")
	f.IntVar(&cfg.Frames, "frames", 0, "of each stream (until --duration)")
	f.DurationVar(&cfg.Duration, "duration", 0, "of sending, at most (10s)")
	f.DurationVar(&cfg.RampUp, "ramp-up", 0, "streams begin one after the other in this time")
	f.DurationVar(&cfg.Warmup, "warmup", 0, "after the ramp-up; in no rate or latency")
	f.DurationVar(&cfg.Deadline, "deadline", 0, "answers older than this are no goodput")
	f.DurationVar(&cfg.Grace, "grace", 0, "wait for the last endings, at most (5s)")
	f.IntVar(&cfg.Size, "size", 0, "bytes of a frame (1024)")
	f.StringVar(&cfg.File, "file", "", "each frame is this file, such as a picture")
	f.StringVar(&cfg.Dir, "dir", "", "frames are the files of this folder, over and over")
	f.Uint64Var(&cfg.Seed, "seed", 0, "of the random gaps")
	f.BoolVar(&asJSON, "json", false, "the report as JSON on standard output, progress on standard error")
	f.StringVar(&csv, "csv", "", "a file for the seconds of the run")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var err error
		if cfg.URL == "" {
			cl, err := host.dial()
			if err != nil {
				return err
			}
			cfg.URL = cl.Addr()
		}
		if cfg.TLS, err = host.tls(cfg.URL); err != nil {
			return err
		}
		if cfg.Options, err = pairs("--option", options); err != nil {
			return err
		}
		if _, told := cfg.Options["outputs"]; !told && cfg.Protocol == load.WebSocketProtocol {
			cfg.Options["outputs"] = "binary" // which, unlike JSON, can carry any answer
		}
		if cfg.Header, err = pairs("--header", header); err != nil {
			return err
		}
		if err := cfg.Validate(); err != nil {
			return usageError{err}
		}
		lines := newProgress(c.ErrOrStderr())
		cfg.Progress = func(r load.Row) { lines.line(r.String()) }
		r, err := load.Run(c.Context(), cfg)
		lines.end()
		if err != nil {
			return err
		}
		return writeReport(c, r, asJSON, csv)
	}
	return c
}

func writeReport(c *cobra.Command, r *load.Report, asJSON bool, csv string) error {
	write := r.WriteText
	if asJSON {
		write = r.WriteJSON
	}
	if err := write(c.OutOrStdout()); err != nil {
		return err
	}
	if csv != "" {
		f, err := os.Create(csv)
		if err != nil {
			return err
		}
		if err := errors.Join(r.WriteCSV(f), f.Close()); err != nil {
			return err
		}
	}
	if !r.OK() {
		return fmt.Errorf("bench: %d frames without an ending, %d endings for no frame, %d streams lost", r.Unaccounted, r.Unexpected, lost(r))
	}
	return nil
}

func lost(r *load.Report) (n uint64) {
	for _, k := range r.Lost {
		n += k
	}
	return n
}

func pairs(flag string, list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, p := range list {
		k, v, ok := strings.Cut(p, "=")
		if _, twice := out[k]; !ok || k == "" || twice {
			return nil, usagef("%s: %q is not key=value, or given twice", flag, p)
		}
		out[k] = v
	}
	return out, nil
}
