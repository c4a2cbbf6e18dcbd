package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/stream"
)

const streamsExamples = `  millrace streams
  millrace streams add door rtsp://viewer:secret@192.0.2.7/live --model find --fps 10
  millrace streams show door
  millrace streams set door max_age_ms=400 priority=high
  millrace streams pause door yard
  millrace streams resume door yard
  millrace streams remove yard`

func streamsCommand() *cobra.Command {
	c := listStreams("streams")
	c.Short = "List, add, change, pause and remove cameras that the server watches itself"
	c.Long = `List the streams of a running server's own: cameras and videos that it reads itself, the model that sees them, and what came
of it. Those of the configuration and those added while it runs are alike.`
	c.Example = streamsExamples
	c.AddCommand(listStreams("list"), showStream(), addStream(), setStream(),
		eachStream("pause", "Analyse no frame of streams until they are resumed; their sources stay open", pausing(true)),
		eachStream("resume", "Go on with streams that were paused", pausing(false)),
		eachStream("remove", "End streams", (*client.Client).RemoveServerStream))
	return c
}

func listStreams(use string) *cobra.Command {
	c := &cobra.Command{
		Use:     use,
		Short:   "List the streams",
		Example: "  millrace streams list\n  millrace streams list --json",
		Args:    wrongUsage(cobra.NoArgs),
	}
	addr := addrFlag(c)
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cl, err := dial(*addr)
		if err != nil {
			return err
		}
		defer cl.Close()
		list, err := cl.ServerStreams(c.Context())
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(c.OutOrStdout(), list)
		}
		rows := [][]string{{"NAME", "STATE", "MODEL", "FRAMES", "RESULTS", "DROPPED", "FAILED", "LAST", "PROBLEM"}}
		for i := range list {
			s := &list[i]
			rows = append(rows, []string{
				s.Name, doing(s), s.Model, count(s.Frames), count(s.Results), count(dropped(s)), count(s.Errors), ago(s.Last, time.Now()), problem(s),
			})
		}
		return table(c.OutOrStdout(), rows...)
	}
	return c
}

func showStream() *cobra.Command {
	c := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show what a stream does, with all its figures",
		Example: "  millrace streams show door\n  millrace streams show door --json",
		Args:    wrongUsage(cobra.ExactArgs(1)),
	}
	addr := addrFlag(c)
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := dial(*addr)
		if err != nil {
			return err
		}
		defer cl.Close()
		s, err := cl.ServerStream(c.Context(), args[0])
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(c.OutOrStdout(), s)
		}
		return table(c.OutOrStdout(), streamRows(&s)...)
	}
	return c
}

func addStream() *cobra.Command {
	c := &cobra.Command{
		Use:   "add NAME SOURCE --model MODEL",
		Short: "Have the server watch a camera",
		Long: `Have the server watch a camera or video and give its frames to a model. SOURCE is an http, https, rtsp or rtsps address; files,
devices and addresses of private networks are for the server's configuration (or sources.allow_private, for the latter).`,
		Example: `  millrace streams add door rtsp://viewer:secret@192.0.2.7/live --model find --fps 10
  millrace streams add yard https://example.com/yard.m3u8 --model find --webhook https://example.com/found --webhook-secret change-me`,
		Args: wrongUsage(cobra.ExactArgs(2)),
	}
	addr := addrFlag(c)
	f := c.Flags()
	var (
		cfg    client.StreamConfig
		policy string
	)
	f.StringVar(&cfg.Model, "model", "", "the model that sees its frames (needed)")
	f.StringVar(&cfg.Version, "version", "", "of the model (any)")
	f.StringVar(&cfg.Transport, "rtsp-transport", "", "of an rtsp source: tcp or udp (tcp)")
	f.StringVar(&policy, "policy", "", "latest or every (latest)")
	f.Float64Var(&cfg.FPS, "fps", 0, "frames taken from the source a second, at most (all)")
	f.IntVar(&cfg.Width, "width", 0, "pixels that frames are scaled to (as they come)")
	f.IntVar(&cfg.MaxAgeMS, "max-age-ms", 0, "a frame that would be answered older is dropped (the model's)")
	f.IntVar(&cfg.DeadlineMS, "deadline-ms", 0, "the same, for each frame (the model's)")
	f.Float64Var(&cfg.MaxFPS, "max-fps", 0, "frames that come sooner are dropped (the model's)")
	f.IntVar(&cfg.Window, "window", 0, "frames on their way at once (the model's)")
	f.StringVar(&cfg.Priority, "priority", "", "normal, high or low (the model's)")
	f.BoolVar(&cfg.Loop, "loop", false, "a video with an end starts over")
	f.BoolVar(&cfg.Paused, "paused", false, "analyse no frame until it is resumed")
	f.StringVar(&cfg.Sinks.Webhook, "webhook", "", "an address that results are posted to")
	f.StringVar(&cfg.Sinks.WebhookSecret, "webhook-secret", "", "signs what is posted")
	asJSON := f.Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg.Name, cfg.Source, cfg.Policy = args[0], args[1], stream.Mode(policy)
		if cfg.Model == "" {
			return usagef("--model is missing: see `millrace models`")
		}
		cl, err := dial(*addr)
		if err != nil {
			return err
		}
		defer cl.Close()
		s, err := cl.AddServerStream(c.Context(), cfg)
		if err != nil || !*asJSON {
			return err
		}
		return writeJSON(c.OutOrStdout(), s)
	}
	return c
}

func pausing(paused bool) func(*client.Client, context.Context, string) error {
	return func(cl *client.Client, ctx context.Context, name string) error {
		_, err := cl.ChangeServerStream(ctx, name, client.StreamChange{Paused: &paused})
		return err
	}
}

// eachStream is a command that does something to each stream it names. One that
// fails keeps it from none of the others.
func eachStream(verb, short string, do func(*client.Client, context.Context, string) error) *cobra.Command {
	c := &cobra.Command{
		Use:     verb + " NAME...",
		Short:   short,
		Example: fmt.Sprintf("  millrace streams %s door\n  millrace streams %s door yard", verb, verb),
		Args:    wrongUsage(cobra.MinimumNArgs(1)),
	}
	addr := addrFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := dial(*addr)
		if err != nil {
			return err
		}
		defer cl.Close()
		var errs []error
		for _, name := range args {
			if err := do(cl, c.Context(), name); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
		return errors.Join(errs...)
	}
	return c
}

// streamRows is all that is known of a stream, for table.
func streamRows(s *client.ServerStream) [][]string {
	now := time.Now()
	rows := [][]string{
		{"stream", s.Name + map[string]string{"config": " (of the configuration)", "request": " (added by a request)"}[s.Origin]},
		{"source", strings.TrimSuffix(s.Source+" over "+s.Transport, " over ")},
		{"model", strings.TrimSpace(s.Model + " " + s.Version)},
		{"state", doing(s) + ", for " + span(now.Sub(s.Since))},
	}
	if why := problem(s); why != "" {
		rows = append(rows, []string{"problem", why})
	}
	if s.Retry != nil {
		rows = append(rows, []string{"tried again", "in " + span(s.Retry.Sub(now))})
	}
	if s.Width > 0 {
		size := fmt.Sprintf("%dx%d", s.Width, s.Height)
		if s.FPS > 0 {
			size += fmt.Sprintf(" at %.4g fps", s.FPS)
		}
		rows = append(rows, []string{"frames are", size})
	}
	rows = append(rows,
		[]string{"policy", policyText(&s.Policy)},
		[]string{"restarts", count(s.Restarts)},
		[]string{"frames", count(s.Frames)},
		[]string{"results", count(s.Results)},
		[]string{"dropped", listed(s.Drops)},
		[]string{"failed", count(s.Errors)},
		[]string{"newest result", ago(s.Last, now)},
		[]string{"lost", lostText(&s.Lost)},
		[]string{"watchers", strconv.Itoa(s.Watchers)})
	if w := s.Webhook; w != nil {
		text := fmt.Sprintf("%d sent, %d lost, tried again %d times", w.Sent, w.Lost, w.Retries)
		if w.Error != "" {
			text += ": " + w.Error
		}
		rows = append(rows, []string{"webhook", text})
	}
	return rows
}

func policyText(p *client.StreamPolicy) string {
	text := fmt.Sprintf("%s, %s priority", p.Policy, p.Priority)
	for _, part := range []struct {
		name string
		v    float64
	}{{"max_age_ms", float64(p.MaxAgeMS)}, {"deadline_ms", float64(p.DeadlineMS)}, {"max_fps", p.MaxFPS}, {"window", float64(p.Window)}} {
		if part.v != 0 {
			text += fmt.Sprintf(", %s %g", part.name, part.v)
		}
	}
	return text
}

func lostText(l *client.StreamLost) string {
	return listed(map[string]uint64{
		"frames for want of memory": l.Frames, "results for all sinks": l.Results, "lines for watchers": l.Lines, "lines for the file": l.File,
	})
}

// listed is "3 (2 stale, 1 superseded)"; what there is none of is left out.
func listed[K ~string](by map[K]uint64) string {
	some := map[K]int{}
	total := 0
	for what, n := range by {
		if n > 0 {
			some[what] = int(n)
			total += int(n)
		}
	}
	return counted(total, some)
}

func doing(s *client.ServerStream) string {
	if s.Paused {
		return s.State + ", paused"
	}
	return s.State
}

// problem is what is wrong now: the last failure of one that runs is over.
func problem(s *client.ServerStream) string {
	switch {
	case s.Error != nil && (s.State == "waiting" || s.State == "failed" || s.State == "connecting"):
		return s.Error.Message
	case s.Webhook != nil && s.Webhook.Error != "":
		return s.Webhook.Error
	}
	return ""
}

func dropped(s *client.ServerStream) (n uint64) {
	for _, d := range s.Drops {
		n += d
	}
	return n
}

func count(n uint64) string { return strconv.FormatUint(n, 10) }

// ago is how long something is past, "-" for nothing.
func ago(t *time.Time, now time.Time) string {
	if t == nil {
		return "-"
	}
	return span(now.Sub(*t)) + " ago"
}

// span is a time in its two largest units; the clocks of two machines may make
// it negative.
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}
