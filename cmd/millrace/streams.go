package main

import (
	"cmp"
	"context"
	"encoding/json"
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
	"millrace/ingest/sources"
	"millrace/ingest/streams"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/stream/rules"
)

const streamsExamples = `  millrace streams
  millrace streams add door rtsp://viewer:secret@192.0.2.7/live --model find --fps 10
  millrace streams show door
  millrace streams add yard rtsp://192.0.2.8/live --model faces,max_fps=10 --model motion
  millrace streams set door max_age_ms=400 priority=high
  millrace streams set door model=motion
  millrace streams set yard faces.max_fps=5
  millrace streams counts door
  millrace streams pause door yard
  millrace streams resume door yard
  millrace streams remove yard
  millrace streams reset door`

func streamsCommand() *cobra.Command {
	c := listStreams("streams")
	c.Short = "List, add, change, pause, remove and reset server streams"
	c.Long = `List the server streams of a running server: cameras and videos that the server reads itself, with their models and the
endings of their frames. It lists those of the configuration and those that were added while the server runs.`
	c.Example = streamsExamples
	c.AddCommand(listStreams("list"), showStream(), showCounts(), addStream(), setStream(),
		eachStream("pause", "Pause streams: their sources stay open, but no frame is analysed", setPaused(true)),
		eachStream("resume", "Resume paused streams", setPaused(false)),
		eachStream("reset", "Make streams of the configuration what they are there, also removed ones", resetStream),
		eachStream("remove", "End streams and remove them", removeStream))
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
				s.Name, stateText(s), modelsText(s), count(s.Frames), count(s.Results), count(dropped(s)),
				count(s.Errors), ago(s.Last, time.Now()), oneLine(problem(s)),
			})
		}
		return table(c.OutOrStdout(), rows...)
	}
	return c
}

func showStream() *cobra.Command {
	c := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show the state and all counters of a stream",
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
			return suggestStream(c.Context(), cl, args[0], err)
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
		Short: "Add a server stream",
		Long: `Add a server stream: the server reads a camera or video and sends the frames to a model. SOURCE is an address:
` + sources.RequestSchemes() + `. Files, devices and programs are sources of the server's configuration only; an address
of a private network needs the setting sources.allow_private.`,
		Example: `  millrace streams add door rtsp://viewer:secret@192.0.2.7/live --model find --fps 10
  millrace streams add yard https://example.com/yard.m3u8 --model find \
    --webhook https://example.com/found --webhook-secret change-me`,
		Args: wrongUsage(cobra.ExactArgs(2)),
	}
	host := remoteFlags(c)
	given := requestFlags(c.Flags())
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := given.config()
		if err != nil {
			return usageError{err}
		}
		cfg.Name, cfg.Source = args[0], args[1]
		if cfg.Settings["model"] == nil && cfg.Models == nil {
			return usagef("--model is missing: see `millrace models`")
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		s, err := cl.AddServerStream(c.Context(), cfg)
		if err != nil {
			return given.withFlagNames(err)
		}
		for _, m := range s.Models {
			if _, err := cl.Metadata(c.Context(), m.Model, m.Version); stream.CodeOf(err) == stream.NotFound {
				wanted := strings.TrimSuffix(m.Model+" version "+m.Version, " version ")
				_, _ = fmt.Fprintf(c.ErrOrStderr(),
					"%s waits for the model %s, which is not loaded: see millrace models load\n", s.Name, wanted)
			}
		}
		if *asJSON {
			return writeJSON(c.OutOrStdout(), s)
		}
		return nil
	}
	return c
}

const exampleRules = `{"lines": [{"name": "door", "from": [0.5, 0], "to": [0.5, 1]}]}`

// requestSettings are the settings of a stream that a request may set, except name and source, as flags.
type requestSettings struct {
	flags *pflag.FlagSet
	table *setting.Table
	names map[string]string // of the flags, by paths

	models *[]string // values of --model
	rules  *string   // value of --rules
}

// isRule reports whether a setting is a part of the rules, given as a whole.
func isRule(f setting.Field) bool { return strings.HasPrefix(f.Path, "rules.") }

// rulesOf reads rules in JSON; "" means none.
func rulesOf(text string) (map[string]any, error) {
	if text == "" {
		return map[string]any{}, nil
	}
	r, err := rules.Parse([]byte(text))
	if err != nil {
		var e *coded.Error
		if !errors.As(err, &e) {
			return nil, fmt.Errorf("rules: %w", err)
		}
		return nil, coded.PrefixField("rules", err)
	}
	return setting.TableOf("", r).Object(), nil
}

func requestFlags(flags *pflag.FlagSet) *requestSettings {
	r := &requestSettings{flags: flags, table: streams.NewDraft().Table(), names: map[string]string{}}
	r.rules = flags.String("rules", "", `lines and zones in JSON, such as `+exampleRules)
	for _, f := range r.table.Fields() {
		if f.Request == "" || f.Path == "name" || f.Path == "source" || isRule(f) {
			continue
		}
		name := strings.NewReplacer("_", "-", ".", "-").Replace(strings.TrimPrefix(f.Path, "sinks."))
		r.names[f.Path] = name
		help := f.Help
		if r := f.Range(); r != "" {
			help += ": " + r
		}
		if def := cmp.Or(f.Default, f.Unset); def != "" {
			help += " (" + def + ")"
		}
		if f.Path == "model" {
			r.models = flags.StringArray(name, nil, "the model that gets its frames, as NAME or NAME,KEY=VALUE with "+
				"settings of its policy: repeat it for several models")
		} else if f.IsBool() {
			flags.Bool(name, false, help)
		} else {
			flags.String(name, "", help)
		}
	}
	return r
}

// config returns the settings given as flags.
func (r *requestSettings) config() (cfg client.StreamConfig, err error) {
	var errs []error
	for _, f := range r.table.Fields() {
		if flag := r.flags.Lookup(r.names[f.Path]); flag != nil && flag.Changed && f.Path != "model" {
			errs = append(errs, r.withFlagNames(f.Set(flag.Value.String())))
		}
	}
	errs = append(errs, r.setModels())
	cfg.Settings = r.table.Object()
	if *r.rules != "" {
		own, err := rulesOf(*r.rules)
		cfg.Settings["rules"] = own
		errs = append(errs, err)
	}
	if list, ok := cfg.Settings["models"]; ok {
		delete(cfg.Settings, "models")
		text, err := json.Marshal(list)
		errs = append(errs, err, json.Unmarshal(text, &cfg.Models))
	}
	cfg.Sinks, _ = cfg.Settings["sinks"].(map[string]any)
	delete(cfg.Settings, "sinks")
	return cfg, setting.Join(errs...)
}

// setModels reads the values of --model: a single name is the stream's only model.
func (r *requestSettings) setModels() error {
	if names := *r.models; len(names) == 1 && !strings.Contains(names[0], ",") {
		return r.withFlagNames(r.table.Set("model", names[0]))
	}
	list, _ := r.table.FindList("models")
	var errs []error
	for _, text := range *r.models {
		name, settings, _ := strings.Cut(text, ",")
		entry := list.Add()
		errs = append(errs, entry.Set("model", name))
		for setting := range strings.SplitSeq(settings, ",") {
			key, value, ok := strings.Cut(setting, "=")
			switch {
			case settings == "":
			case !ok:
				errs = append(errs, usagef("--model: %q of %s is not KEY=VALUE", setting, name))
			default:
				errs = append(errs, coded.PrefixField("--model "+name, entry.Set(key, value)))
			}
		}
	}
	return setting.Join(errs...)
}

// withFlagNames replaces names of settings in err by flags and arguments.
func (r *requestSettings) withFlagNames(err error) error {
	return withName(err, func(field string) string {
		switch name := r.names[field]; {
		case name != "":
			return "--" + name
		case field == "name" || field == "source":
			return strings.ToUpper(field)
		}
		return field
	})
}

func setPaused(paused bool) func(*client.Client, context.Context, string) (string, error) {
	return func(cl *client.Client, ctx context.Context, name string) (string, error) {
		_, err := cl.ChangeServerStream(ctx, name, client.StreamChange{Paused: &paused})
		return "", err
	}
}

func resetStream(cl *client.Client, ctx context.Context, name string) (string, error) {
	_, err := cl.ResetServerStream(ctx, name)
	return "", err
}

// removeStream removes a stream, and returns how to restore a configured stream.
func removeStream(cl *client.Client, ctx context.Context, name string) (note string, err error) {
	s, _ := cl.ServerStream(ctx, name) // a client may remove a stream without the right to see the stream
	err = cl.RemoveServerStream(ctx, name)
	if s.Origin == "config" {
		note = fmt.Sprintf("%[1]s is a stream of the configuration: millrace streams reset %[1]s brings it back, "+
			"and so do SIGHUP and a restart of the server", name)
	}
	return note, err
}

// eachStream returns a command that calls do for each stream in the arguments, and prints the note returned by do to
// standard error. After an error the command goes on with the next stream.
func eachStream(verb, short string, do func(*client.Client, context.Context, string) (note string,
	err error)) *cobra.Command {
	c := &cobra.Command{
		Use:     verb + " NAME...",
		Short:   short,
		Example: fmt.Sprintf("  millrace streams %s door\n  millrace streams %s door yard", verb, verb),
		Args:    wrongUsage(cobra.MinimumNArgs(1)),

		ValidArgsFunction: completeStreams,
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
			note, err := do(cl, c.Context(), name)
			if err == nil && note != "" {
				_, _ = fmt.Fprintln(c.ErrOrStderr(), note)
			}
			if stream.CodeOf(err) == stream.Unavailable {
				return err // the other errors would be the same
			}
			errs = append(errs, suggestStream(c.Context(), cl, name, err))
		}
		return setting.Join(errs...)
	}
	return c
}

// streamRows returns the state and counters of a stream as rows of a table.
func streamRows(s *client.ServerStream) [][]string {
	now := time.Now()
	rows := [][]string{
		{"stream", s.Name + map[string]string{"config": " (of the configuration)",
			"request": " (added by a request)"}[s.Origin]},
		{"source", strings.TrimSuffix(s.Source+" over "+s.Transport, " over ")},
		{"model", modelsText(s)},
		{"state", stateText(s) + ", for " + span(now.Sub(s.Since))},
	}
	if text := problem(s); text != "" {
		rows = append(rows, []string{"problem", text})
	}
	if s.Retry != nil {
		rows = append(rows, []string{"next try", "in " + span(s.Retry.Sub(now))})
	}
	if s.Width > 0 {
		size := fmt.Sprintf("%dx%d", s.Width, s.Height)
		if s.PixelAspect > 0 && s.PixelAspect != 1 {
			size += fmt.Sprintf(" of pixels %.4g times as wide as high", s.PixelAspect)
		}
		// the server lowers the rate declared by the source
		if most, _ := s.Settings["fps"].(float64); most > 0 && s.FPS == most {
			size += fmt.Sprintf("; at most %.4g fps are taken from the source (setting fps)", s.FPS)
		} else if s.FPS > 0 {
			size += fmt.Sprintf("; the source declares %.4g fps", s.FPS)
		}
		if s.State == "running" {
			size += fmt.Sprintf("; %.4g fps read in the last 10 s", s.Measured)
		}
		rows = append(rows, []string{"frame size", size})
	}
	if len(s.Settings) > 0 {
		var texts []string
		for _, key := range slices.Sorted(maps.Keys(s.Settings)) {
			texts = append(texts, fmt.Sprintf("%s %v", key, s.Settings[key]))
		}
		rows = append(rows, []string{"settings", strings.Join(texts, ", ")})
	}
	for i := range s.Models {
		m := &s.Models[i]
		text := policyText(&m.Policy)
		if len(s.Models) == 1 {
			rows = append(rows, []string{"policy", text})
			break
		}
		text = fmt.Sprintf("%s, %d results, %s dropped, %d failed, newest %s; %s", m.State, m.Results, listed(m.Drops),
			m.Errors, ago(m.Last, now), text)
		rows = append(rows, []string{"model " + m.Model, text})
	}
	rows = append(rows,
		[]string{"restarts", count(s.Restarts)},
		[]string{"frames", count(s.Frames)},
		[]string{"skipped pictures", count(s.Skipped)},
		[]string{"results", count(s.Results)},
		[]string{"dropped", listed(s.Drops)},
		[]string{"failed", count(s.Errors)},
		[]string{"newest result", ago(s.Last, now)},
		[]string{"lost", lostText(&s.Lost)},
		[]string{"watchers", strconv.Itoa(s.Watchers)})
	for _, name := range slices.Sorted(maps.Keys(s.Sinks)) {
		k := s.Sinks[name]
		text := fmt.Sprintf("%d results sent, %d waiting, %d results not delivered by this sink, %d retries", k.Sent,
			k.Waiting, k.Lost, k.Retries)
		if k.Error != "" {
			text += ": " + k.Error
		}
		rows = append(rows, []string{"sink " + name, text})
	}
	return rows
}

// modelsText names the models of a stream.
func modelsText(s *client.ServerStream) string {
	names := make([]string, len(s.Models))
	for i, m := range s.Models {
		names[i] = strings.TrimSpace(m.Model + " " + m.Version)
	}
	return strings.Join(names, ", ")
}

// waitingModels returns why models of a running stream wait, "" if none does.
func waitingModels(s *client.ServerStream) string {
	var texts []string
	for _, m := range s.Models {
		if m.State == "waiting" && m.Error != nil {
			texts = append(texts, missingModel(m.Error.Message))
		}
	}
	return strings.Join(texts, "; ")
}

// missingModel returns the problem of a stream. If the stream's model is not loaded, the text says where to find the
// reason.
func missingModel(text string) string {
	text = withCommands(text)
	if strings.HasSuffix(text, "is not loaded: see millrace models") {
		text += ", or the log of the server if no reason is there" // for a configuration refused as a whole
	}
	return text
}

func policyText(p *client.StreamPolicy) string {
	text := fmt.Sprintf("%s, %s priority", p.Policy, p.Priority)
	for _, part := range []struct {
		name string
		v    float64
	}{{"max_age_ms", float64(p.MaxAgeMS)}, {"deadline_ms", float64(p.DeadlineMS)}, {"max_fps", p.MaxFPS},
		{"window", float64(p.Window)}} {
		if part.v != 0 {
			text += fmt.Sprintf(", %s %g", part.name, part.v)
		}
	}
	return text
}

// lostText has no sum: the losses are of several units.
func lostText(l *client.StreamLost) string {
	return fmt.Sprintf("%d frames without free memory, %d results that no sink was given, %d lines for slow watchers",
		l.Frames, l.Results, l.Lines)
}

// listed returns text such as "3 (2 stale, 1 superseded)", without zero counts.
func listed[K ~string](by map[K]uint64) string {
	nonzero := map[K]int{}
	total := 0
	for what, n := range by {
		if n > 0 {
			nonzero[what] = int(n)
			total += int(n)
		}
	}
	return countText(total, nonzero)
}

func stateText(s *client.ServerStream) string {
	if s.Paused {
		return s.State + ", paused"
	}
	return s.State
}

// problem returns the current error of a stream or of one of its sinks, or "". The last error of a stream that runs
// again is not current.
func problem(s *client.ServerStream) string {
	if s.Error != nil && (s.State == "waiting" || s.State == "failed" || s.State == "connecting") {
		return missingModel(s.Error.Message)
	}
	if text := waitingModels(s); text != "" && s.State == "running" {
		return text
	}
	for _, m := range s.Models {
		if m.Error != nil && (m.State == "running" || m.State == "ended" && m.Errors > 0) {
			return "its newest frame failed: " + m.Error.Message
		}
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

// ago returns the time since t; "-" for nil.
func ago(t *time.Time, now time.Time) string {
	if t == nil {
		return "-"
	}
	return span(now.Sub(*t)) + " ago"
}

// span writes a duration in its two largest units. A negative duration, possible with different clocks of client and
// server, counts as 0.
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
