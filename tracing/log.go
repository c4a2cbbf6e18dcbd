package tracing

import (
	"fmt"
	"io"
	"log/slog"
	"os"
)

// LogOptions configure the server's log.
type LogOptions struct {
	Format string    // "text" (also "") or "json"
	Level  string    // "debug", "info" (also ""), "warn" or "error"
	File   string    // a file to append to as well, if not ""
	Stderr io.Writer // nil = the process's standard error
}

// NewLog returns a logger and its file, nil for none. Errors name the setting.
func NewLog(o LogOptions) (*slog.Logger, *LogFile, error) {
	var level slog.Level
	if o.Level != "" {
		if err := level.UnmarshalText([]byte(o.Level)); err != nil {
			return nil, nil, fmt.Errorf("log.level: %q is not a level: want debug, info, warn or error", o.Level)
		}
	}
	if o.Format != "" && o.Format != "text" && o.Format != "json" {
		return nil, nil, fmt.Errorf("log.format: %q is not a format: want text or json", o.Format)
	}
	out := tee{o.Stderr}
	if o.Stderr == nil {
		out[0] = os.Stderr
	}
	var file *LogFile
	if o.File != "" {
		var err error
		if file, err = openLogFile(o.File); err != nil {
			return nil, nil, err
		}
		out = append(out, file)
	}
	opts := &slog.HandlerOptions{Level: level}
	if o.Format == "json" {
		return slog.New(slog.NewJSONHandler(out, opts)), file, nil
	}
	return slog.New(slog.NewTextHandler(out, opts)), file, nil
}

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
