package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/client"
	"millrace/ingest/streams"
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
	host := remoteFlags(c)
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cl, err := host.dial()
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
	host := remoteFlags(c)
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := host.dial()
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
	host := remoteFlags(c)
	given := requestFlags(c.Flags())
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := given()
		if err != nil {
			return err
		}
		cfg.Name, cfg.Source = args[0], args[1]
		if cfg.Settings["model"] == nil {
			return usagef("--model is missing: see `millrace models`")
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		s, err := cl.AddServerStream(c.Context(), cfg)
		if err != nil {
			return err
		}
		if _, err := cl.Metadata(c.Context(), s.Model, s.Version); stream.CodeOf(err) == stream.NotFound {
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "%s waits for the model %s, which is not loaded: see millrace models load\n", s.Name, s.Model)
		}
		if *asJSON {
			return writeJSON(c.OutOrStdout(), s)
		}
		return nil
	}
	return c
}

// requestFlags makes a flag of each setting of a stream that a request may set,
// but its name and source. given returns those that were set.
func requestFlags(flags *pflag.FlagSet) (given func() (client.StreamConfig, error)) {
	table := streams.NewDraft().Table()
	paths := map[string]string{} // by the names of flags
	for _, f := range table.Fields() {
		if f.Request == "" || f.Path == "name" || f.Path == "source" {
			continue
		}
		name := strings.NewReplacer("_", "-", ".", "-").Replace(strings.TrimPrefix(f.Path, "sinks."))
		paths[name] = f.Path
		help := f.Help
		if len(f.Words) > 0 {
			help += ": " + strings.Join(f.Words, ", ")
		}
		if left := cmp.Or(f.Default, f.Unset); left != "" {
			help += " (" + left + ")"
		}
		if f.IsBool() {
			flags.Bool(name, false, help)
		} else {
			flags.String(name, "", help)
		}
	}
	return func() (cfg client.StreamConfig, err error) {
		flags.Visit(func(f *pflag.Flag) {
			if path, ok := paths[f.Name]; ok && err == nil {
				err = table.Set(path, f.Value.String())
			}
		})
		cfg.Settings = table.Object()
		cfg.Sinks, _ = cfg.Settings["sinks"].(map[string]any)
		delete(cfg.Settings, "sinks")
		return cfg, err
	}
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
	host := remoteFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := host.dial()
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
	for _, name := range slices.Sorted(maps.Keys(s.Sinks)) {
		k := s.Sinks[name]
		text := fmt.Sprintf("%d sent, %d lost, tried again %d times", k.Sent, k.Lost, k.Retries)
		if k.Error != "" {
			text += ": " + k.Error
		}
		rows = append(rows, []string{name, text})
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
		"frames for want of memory": l.Frames, "results for all sinks": l.Results, "lines for watchers": l.Lines,
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
	if s.Error != nil && (s.State == "waiting" || s.State == "failed" || s.State == "connecting") {
		return commandsOf(s.Error.Message)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Sinks)) {
		if text := s.Sinks[name].Error; text != "" {
			return text
		}
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
