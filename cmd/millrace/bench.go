package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/client/load"
	"millrace/stream"
)

const benchExamples = `  millrace bench --model identity --streams 32 --window 8 --size 30000
  millrace bench --model motion --file frame.jpg --streams 10 --rate 30 --option policy=latest --deadline 100ms
  millrace bench --model identity --protocol rest --tensor --streams 16 --json`

func benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Put load on a running server, and report rates, latencies and endings",
		Long: `Put load on a running server over WebSocket or REST. Without --rate the loop is closed: each stream keeps --window frames
in flight, and the result is the capacity. With --rate the loop is open: frames are due at the rate, however busy the server
is, and latencies are measured from the time when a frame was due. The exit status is 1 when a frame had no ending or two
endings, or when all frames failed. Sending ends early when the first 100 frames all failed with the same error.`,
		Example: benchExamples,
		Args:    wrongUsage(cobra.NoArgs),
	}
	f := c.Flags()
	var (
		cfg             load.Config
		options, header []string
		asJSON          bool
		csv, request    string
	)
	host := remoteFlags(c)
	f.StringVar(&cfg.Protocol, "protocol", load.WebSocketProtocol, "ws, v1 (millrace.v1) or rest")
	f.StringVar(&cfg.Model, "model", "", "the model (required)")
	f.StringArrayVar(&options, "option", nil,
		"key=value: an option of the stream or request, such as policy=latest; may be repeated (outputs=binary)")
	f.StringArrayVar(&header, "header", nil, "name=value: a header of each request; may be repeated")
	f.BoolVar(&cfg.Tensor, "tensor", false, "over REST: the payload is the bytes of one tensor (of a model that "+
		"declares no inputs: UINT8 in one dimension, unless --option datatype= and shape= say otherwise)")
	f.IntVar(&cfg.Streams, "streams", 1, "streams that are open at once")
	f.Float64Var(&cfg.Rate, "rate", 0, "frames per second of each stream (closed loop)")
	f.BoolVar(&cfg.Poisson, "poisson", false, "open loop with random gaps instead of even ones")
	f.IntVar(&cfg.Burst, "burst", 1, "open loop: frames that are due at the same moment")
	f.IntVar(&cfg.Window, "window", 1, "closed loop: frames in flight on each stream")
	f.IntVar(&cfg.Frames, "frames", 0, "frames of each stream (until --duration)")
	f.DurationVar(&cfg.Duration, "duration", 0, "how long to send, at most (10s)")
	f.DurationVar(&cfg.RampUp, "ramp-up", 0, "the time in which the streams are opened, one after the other")
	f.DurationVar(&cfg.Warmup, "warmup", 0, "time after the ramp-up that rates and latencies leave out")
	f.DurationVar(&cfg.Deadline, "deadline", 0, "answers older than this do not count as goodput")
	f.DurationVar(&cfg.Grace, "grace", 0, "how long to wait for the last endings, at most (5s)")
	f.IntVar(&cfg.Size, "size", 0, "size of a frame in bytes (1024; with --tensor one row of the model's input)")
	f.StringVar(&cfg.File, "file", "", "each frame is this file, such as a picture")
	f.StringVar(&cfg.Dir, "dir", "", "the frames are the files of this folder, repeated")
	f.StringVar(&request, "request", "", "over REST: each frame is the request in JSON in this file, such as one "+
		"with several tensors")
	f.Uint64Var(&cfg.Seed, "seed", 0, "seed of the random gaps")
	f.BoolVar(&asJSON, "json", false, "the report as JSON on standard output, progress on standard error")
	f.StringVar(&csv, "csv", "", "write a row for each second of the run to this file")
	c.RunE = func(c *cobra.Command, _ []string) error {
		err := notZero(f, "streams", "rate", "burst", "window", "frames", "duration", "deadline", "grace", "size")
		if err == nil && (cfg.File != "" || cfg.Dir != "") {
			err = without(f, "on frames of --file and --dir", "size")
		}
		if err == nil && !cfg.Poisson {
			err = without(f, "without --poisson", "seed")
		}
		if err == nil && request != "" {
			err = without(f, "with --request", "size", "file", "dir", "tensor")
		}
		if err != nil {
			return err
		}
		if cfg.Model == "" {
			return usagef("--model is missing: see `millrace models`")
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		cfg.URL = cl.Addr()
		if cfg.TLS, err = host.tls(cfg.URL); err != nil {
			return err
		}
		if cfg.Token, err = host.apiKey(); err != nil {
			return err
		}
		if cfg.Options, err = pairs("--option", options); err != nil {
			return err
		}
		if _, given := cfg.Options["outputs"]; !given && cfg.Protocol != load.V1Protocol {
			cfg.Options["outputs"] = "binary" // JSON cannot represent arbitrary bytes
		}
		if cfg.Header, err = pairs("--header", header); err != nil {
			return err
		}
		if request != "" {
			if err := benchRequest(&cfg, request, f.Changed("protocol")); err != nil {
				return err
			}
		}
		if err := cfg.Validate(); err != nil {
			return usageError{err}
		}
		if err := waitLoaded(c.Context(), cl, cfg.Model, c.ErrOrStderr()); err != nil {
			return err
		}
		m, err := cl.Metadata(c.Context(), cfg.Model, "")
		if err != nil {
			return suggestModel(c.Context(), cl, cfg.Model, err)
		}
		cfg.Any = cfg.Tensor && len(m.Inputs) == 0
		if cfg.Tensor && cfg.Size == 0 && len(m.Inputs) == 1 {
			cfg.Size = tensorSize(m.Inputs[0])
		}
		var seconds *os.File
		if csv != "" {
			if seconds, err = os.Create(csv); err != nil {
				return fmt.Errorf("--csv: %w", err)
			}
			defer func() { _ = seconds.Close() }() // the data was written before
		}
		lines := newProgress(c.ErrOrStderr())
		cfg.GiveUp = firstFrames
		cfg.Progress = func(r load.Row) { lines.line(r.String()) }
		r, err := load.Run(c.Context(), cfg)
		lines.end()
		if err != nil {
			return err
		}
		if err = writeReport(c, r, asJSON, seconds); err != nil && refusesFrames(r) {
			return otherFrames(c.Context(), cl, cfg, m, err)
		}
		return err
	}
	return c
}

// benchRequest uses a file with a JSON request as the frames of a run over REST. chosen says that the user has chosen
// the protocol.
func benchRequest(cfg *load.Config, file string, chosen bool) error {
	if chosen && cfg.Protocol != load.RESTProtocol {
		return usagef("--request: is for --protocol rest, not %s", cfg.Protocol)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--request: %w", err)
	}
	if !json.Valid(text) {
		return fmt.Errorf("--request: %s is not JSON", file)
	}
	cfg.Protocol, cfg.File = load.RESTProtocol, file
	cfg.Header["Inference-Header-Content-Length"] = strconv.Itoa(len(text)) // the whole body is JSON
	return nil
}

// firstFrames is the number of frames that end a run early when all frames have failed with the same error.
const firstFrames = 100

// otherFrames returns the error of a run in which the server has refused the frames themselves, with advice for
// sending other frames.
func otherFrames(ctx context.Context, cl *client.Client, cfg load.Config, m client.Metadata, err error) error {
	if _, isRequest := cfg.Header["Inference-Header-Content-Length"]; isRequest {
		return err // the server's error explains the mistake
	}
	if len(m.Inputs) > 1 {
		if takes, failed := takesOf(ctx, cl, m, ""); failed == nil && (takes.Picture == nil || !takes.Picture.Alone) {
			var names []string
			for _, t := range m.Inputs {
				names = append(names, t.Name)
			}
			return fmt.Errorf("%w. Model %s has the inputs %s: give --request FILE, a request in JSON with a tensor "+
				"for each; `millrace examples %s` prints one", err, m.Name, strings.Join(names, ", "), m.Name)
		}
	}
	if !cfg.Tensor && len(m.Inputs) == 1 {
		if takes, failed := takesOf(ctx, cl, m, ""); failed == nil && takes.Picture == nil {
			return fmt.Errorf("%w. Model %s takes tensors: give --protocol rest --tensor", err, m.Name)
		}
	}
	if cfg.File == "" && cfg.Dir == "" {
		return fmt.Errorf("%w. A frame has --size bytes: for other ones give --size, or --file with a picture or "+
			"the bytes of a tensor", err)
	}
	return err
}

// tensorSize returns the size of a frame for an input: one row, and in other free dimensions enough elements for
// about load.DefaultSize. tensorSize returns 0, meaning load.DefaultSize, if the size of an element is not fixed.
func tensorSize(input client.Tensor) int {
	size := stream.Datatype(input.Datatype).Size()
	free := false
	for i, d := range input.Shape {
		if d >= 0 {
			size *= d
		} else if i > 0 {
			free = true
		}
	}
	if free && size > 0 {
		size *= max(load.DefaultSize/size, 1)
	}
	return size
}

// refusesFrames reports whether the server has refused the content of all frames.
func refusesFrames(r *load.Report) bool {
	return r.Answered == 0 && r.Errors[string(stream.InvalidArgument)]+r.Errors[string(stream.Unsupported)]+
		r.Errors[string(stream.TooLarge)] > 0
}

// writeReport writes the report to standard output, and the values of each second to seconds, if not nil.
func writeReport(c *cobra.Command, r *load.Report, asJSON bool, seconds *os.File) error {
	write := r.WriteText
	if asJSON {
		write = r.WriteJSON
	}
	if err := write(c.OutOrStdout()); err != nil {
		return err
	}
	if seconds != nil {
		if err := errors.Join(r.WriteCSV(seconds), seconds.Close()); err != nil {
			return fmt.Errorf("--csv: %w", err)
		}
	}
	if r.Answered == 0 && r.Failed > 0 {
		return fmt.Errorf("no frame was answered: %s failed; the report has the first message of each code",
			listed(r.Errors))
	}
	if r.GivenUp {
		return fmt.Errorf("the first %d frames failed with one error, and no more were sent: %s failed; the report "+
			"has the first message of each code", firstFrames, listed(r.Errors))
	}
	if !r.OK() {
		return fmt.Errorf("%d frames without an ending, %d endings without a frame, %d streams lost", r.Unaccounted,
			r.Unexpected, lostFrames(r))
	}
	return nil
}

func lostFrames(r *load.Report) (n uint64) {
	for _, k := range r.Lost {
		n += k
	}
	return n
}

func pairs(flag string, list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, p := range list {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, usagef("%s: %q is not key=value", flag, p)
		}
		if _, twice := out[k]; twice {
			return nil, usagef("%s: %s is given twice", flag, k)
		}
		out[k] = v
	}
	return out, nil
}
