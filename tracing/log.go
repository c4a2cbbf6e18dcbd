package tracing

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
)

// LogOptions configure the server's log.
type LogOptions struct {
	Format string // "text" (also "") or "json"
	Level  string // "debug", "info" (also ""), "warn" or "error"
	// Least is set to Level, and may be changed while the log is used; nil = Level stays.
	Least  *slog.LevelVar
	File   string    // a file to append to as well, if not ""
	Stderr io.Writer // nil = the process's standard error
}

// NewLog returns a logger and its file, nil for none. Errors name the setting.
func NewLog(o LogOptions) (*slog.Logger, *LogFile, error) {
	level, err := ParseLevel(o.Level)
	if err != nil {
		return nil, nil, fmt.Errorf("log.level: %w", err)
	}
	if o.Least == nil {
		o.Least = new(slog.LevelVar)
	}
	o.Least.Set(level)
	if o.Format != "" && o.Format != "text" && o.Format != "json" {
		return nil, nil, fmt.Errorf("log.format: %q is not a format: want text or json", o.Format)
	}
	out := tee{o.Stderr}
	if o.Stderr == nil {
		out[0] = os.Stderr
	}
	var file *LogFile
	if o.File != "" {
		if file, err = openLogFile(o.File); err != nil {
			return nil, nil, err
		}
		out = append(out, file)
	}
	opts := &slog.HandlerOptions{Level: o.Least}
	if o.Format == "json" {
		return slog.New(slog.NewJSONHandler(out, opts)), file, nil
	}
	return slog.New(slog.NewTextHandler(out, opts)), file, nil
}

// Levels are the names of the log's levels, the one with the most records first.
var Levels = []string{"debug", "info", "warn", "error"}

// ParseLevel returns the level of a name; that of "" is info.
func ParseLevel(name string) (level slog.Level, err error) {
	switch {
	case name == "":
		return slog.LevelInfo, nil
	case !slices.Contains(Levels, name):
		return 0, fmt.Errorf("%.32q is not a level: want debug, info, warn or error", name)
	}
	return level, level.UnmarshalText([]byte(name))
}

// LevelName returns the name of a level.
func LevelName(level slog.Level) string { return strings.ToLower(level.String()) }

// tee writes to all its writers, also when one fails: a closed terminal must not
// stop the log file.
type tee []io.Writer

func (t tee) Write(b []byte) (int, error) {
	var first error
	for _, w := range t {
		if _, err := w.Write(b); err != nil && first == nil {
			first = err
		}
	}
	return len(b), first
}
