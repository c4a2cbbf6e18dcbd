package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/client"
	"millrace/stream/coded"
	"millrace/stream/rules"
)

func eventsCommand() *cobra.Command {
	c := listEvents("events")
	c.Short = "List, follow and export the events of lines and zones, and download clips"
	c.Long = `List the events of the lines and zones of all server streams, the newest first. The server needs the setting
data.`
	c.Example = `  millrace events
  millrace events list --camera gate --type cross --from 24h --json
  millrace events tail --json
  millrace events export --from 2026-12-01T00:00:00Z > events.csv
  millrace events clip --latest --camera gate --out gate.mp4`
	c.AddCommand(listEvents("list"), tailEvents(), exportEvents(), clipOfEvent())
	return c
}

// eventFlags are the flags that select events.
type eventFlags struct {
	query    client.EventQuery
	kind     string
	from, to string
}

func newEventFlags(flags *pflag.FlagSet) *eventFlags {
	f := &eventFlags{}
	flags.StringVar(&f.query.Stream, "camera", "", "only of this server stream")
	flags.StringVar(&f.kind, "type", "", "only of this type: "+rules.TypesText())
	flags.StringVar(&f.query.Rule, "rule", "", "only of the line, zone or condition with this name")
	flags.StringVar(&f.query.Class, "class", "", "only of objects with this label or number of a class")
	return f
}

func (f *eventFlags) addTimes(flags *pflag.FlagSet) {
	flags.StringVar(&f.from, "from", "",
		"only from this time on, such as 2026-12-24T18:00:00Z, or 24h for a day ago")
	flags.StringVar(&f.to, "to", "", "only before this time")
}

// read returns the query.
func (f *eventFlags) read(now time.Time) (q client.EventQuery, err error) {
	q = f.query
	q.Type = rules.EventType(f.kind)
	if q.From, err = timeOrAgo("--from", f.from, now); err == nil {
		q.To, err = timeOrAgo("--to", f.to, now)
	}
	return q, err
}

// timeOrAgo reads a time, or a duration before now; "" is the zero time.
func timeOrAgo(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return now, usagef("%s: %q is not a time, such as 2026-12-24T18:00:00Z, or a duration before now, such as "+
			"1h30m", flag, text)
	}
	return now.Add(-d), nil
}

// eventWriter writes events.
type eventWriter interface {
	write([]client.Event) error
}

type eventLines struct{ *json.Encoder }

func (w eventLines) write(list []client.Event) error {
	for i := range list {
		if err := w.Encode(&list[i]); err != nil {
			return err
		}
	}
	return nil
}

// eventTable writes rows of constant width, so that later events need no new table.
type eventTable struct {
	to    io.Writer
	begun bool
}

func (w *eventTable) write(list []client.Event) error {
	row := func(at, camera, kind, rule, direction, class, speed, tracks string) error {
		_, err := fmt.Fprintf(w.to, "%-24s  %-12s  %-7s  %-12s  %-9s  %-10s  %-6s  %s\n", at, camera, kind, rule,
			direction, class, speed, tracks)
		return err
	}
	if !w.begun {
		w.begun = true
		if err := row("TIME", "CAMERA", "TYPE", "RULE", "DIRECTION", "CLASS", "SPEED",
			"TRACKS"); err != nil {
			return err
		}
	}
	for i := range list {
		e := &list[i]
		if err := row(e.Time.UTC().Format("2006-01-02T15:04:05.000Z"), e.Stream, string(e.Type), e.Rule, e.Direction,
			e.Class, speedText(e.Speed), tracksText(e.Tracks)); err != nil {
			return err
		}
	}
	return nil
}

func tracksText(tracks []int64) string {
	texts := make([]string, len(tracks))
	for i, n := range tracks {
		texts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(texts, " ")
}

// speedText is empty for events without a speed.
func speedText(speed float64) string {
	if speed == 0 {
		return ""
	}
	return strconv.FormatFloat(speed, 'f', 2, 64)
}

type eventCSV struct {
	*csv.Writer
	begun bool
}

func (w *eventCSV) write(list []client.Event) error {
	if !w.begun {
		w.begun = true
		if err := w.Write([]string{"time", "id", "stream", "model", "type", "rule", "direction", "class", "tracks",
			"start", "end", "speed"}); err != nil {
			return err
		}
	}
	for i := range list {
		e := &list[i]
		if err := w.Write([]string{e.Time.UTC().Format(time.RFC3339Nano), e.ID, e.Stream, e.Model, string(e.Type),
			e.Rule, e.Direction, e.Class, tracksText(e.Tracks), strconv.FormatInt(e.Start, 10),
			strconv.FormatInt(e.End, 10), speedText(e.Speed)}); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// linesOr returns a writer of lines of JSON if asked, otherwise w.
func linesOr(asJSON bool, c *cobra.Command, w eventWriter) eventWriter {
	if asJSON {
		return eventLines{json.NewEncoder(c.OutOrStdout())}
	}
	return w
}

func listEvents(use string) *cobra.Command {
	c := &cobra.Command{
		Use:     use,
		Short:   "List the events, the newest first",
		Example: "  millrace events list --camera gate --limit 20\n  millrace events list --from 1h --json",
		Args:    wrongUsage(cobra.NoArgs),
	}
	host := remoteFlags(c)
	flags := newEventFlags(c.Flags())
	flags.addTimes(c.Flags())
	limit := c.Flags().Int("limit", 100, "most events")
	asJSON := c.Flags().Bool("json", false, "a line of JSON for each event")
	c.RunE = func(c *cobra.Command, _ []string) error {
		q, err := flags.read(time.Now())
		if err == nil && *limit < 1 {
			err = usagef("--limit: %d is not a number from 1", *limit)
		}
		if err != nil {
			return err
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		to := linesOr(*asJSON, c, &eventTable{to: c.OutOrStdout()})
		return eachPage(c.Context(), cl, q, *limit, to)
	}
	return c
}

// largestPage is the largest page of events that the server returns.
const largestPage = 1000

// eachPage writes the events of all pages, at most most; 0 = all.
func eachPage(ctx context.Context, cl *client.Client, q client.EventQuery, most int, to eventWriter) error {
	for n := 0; most == 0 || n < most; {
		q.Limit = largestPage
		if most > 0 {
			q.Limit = min(most-n, largestPage)
		}
		list, next, err := cl.Events(ctx, q)
		if err != nil {
			return err
		}
		if err := to.write(list); err != nil {
			return err
		}
		n += len(list)
		if q.After = next; next == "" || len(list) < q.Limit {
			return nil
		}
	}
	return nil
}

// tailTime is the time between two looks for new events.
const tailTime = time.Second

func tailEvents() *cobra.Command {
	c := &cobra.Command{
		Use:     "tail",
		Short:   "Print events as they come, until interrupted",
		Example: "  millrace events tail\n  millrace events tail --camera gate --type cross --json",
		Args:    wrongUsage(cobra.NoArgs),
	}
	host := remoteFlags(c)
	flags := newEventFlags(c.Flags())
	asJSON := c.Flags().Bool("json", false, "a line of JSON for each event")
	c.RunE = func(c *cobra.Command, _ []string) error {
		q, err := flags.read(time.Now())
		if err != nil {
			return err
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		to := linesOr(*asJSON, c, &eventTable{to: c.OutOrStdout()})
		last, _, err := cl.Events(c.Context(), client.EventQuery{Limit: 1}) // of any kind: found at once
		if err != nil {
			return err
		}
		q.Oldest, q.Limit = true, largestPage
		seen := map[string]bool{} // events at the time of the newest event
		if len(last) > 0 {
			q.From, seen[last[0].ID] = last[0].Time, true
		}
		failed := ""
		for {
			list, next, err := cl.Events(c.Context(), q)
			switch code := coded.CodeOf(err); {
			case c.Context().Err() != nil:
				return nil
			case code == coded.Unavailable || code == coded.Draining || code == coded.Timeout: // a restart, for one
				if failed != err.Error() {
					failed = err.Error()
					c.PrintErrln("events are late: " + failed)
				}
				if !pause(c.Context(), tailTime) {
					return nil
				}
				continue
			case err != nil:
				return err
			}
			failed = ""
			full := len(list) == largestPage
			if len(seen) > 0 { // the first page begins with events that were there before
				for i := range list {
					if seen[list[i].ID] {
						list = list[i+1:]
						break
					}
				}
				clear(seen)
			}
			if err := to.write(list); err != nil {
				return err
			}
			if q.After = next; next != "" {
				q.From = time.Time{} // the clock may go back
			}
			if full {
				continue
			}
			if !pause(c.Context(), tailTime) {
				return nil
			}
		}
	}
	return c
}

// pause waits, and reports whether the context goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func exportEvents() *cobra.Command {
	c := &cobra.Command{
		Use:   "export",
		Short: "Print all events as CSV or lines of JSON, the oldest first",
		Example: "  millrace events export > events.csv\n" +
			"  millrace events export --camera gate --from 24h --json > events.jsonl",
		Args: wrongUsage(cobra.NoArgs),
	}
	host := remoteFlags(c)
	flags := newEventFlags(c.Flags())
	flags.addTimes(c.Flags())
	asJSON := c.Flags().Bool("json", false, "lines of JSON instead of CSV")
	c.RunE = func(c *cobra.Command, _ []string) error {
		q, err := flags.read(time.Now())
		if err != nil {
			return err
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		to := linesOr(*asJSON, c, &eventCSV{Writer: csv.NewWriter(c.OutOrStdout())})
		q.Oldest = true
		return eachPage(c.Context(), cl, q, 0, to)
	}
	return c
}
