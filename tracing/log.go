package tracing

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// LogOptions configure the server's log.
type LogOptions struct {
	Format string // "text" (also "") or "json"
	Level  string // "debug", "info" (also ""), "warn" or "error"
	// Least is set to Level, and may be changed while the log is used; nil = Level stays.
	Least    *slog.LevelVar
	Switches *LogSwitches // turn levels off, and may be changed, too; nil = none is off
	File     string       // a file to append to as well, if not ""
	Stderr   io.Writer    // nil = the process's standard error
	Records  slog.Handler // takes the records in place of Stderr; nil = Stderr
	// Lines prints texts of several lines, for example tracebacks, after their record, indented, for people. Lines is
	// true on a terminal without a log file.
	Lines bool
}

// NewLog returns a logger and its file, nil for no file. Errors name the setting.
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
	var out tee
	switch {
	case o.Records != nil:
	case o.Stderr == nil:
		out = tee{os.Stderr}
	default:
		out = tee{o.Stderr}
	}
	var file *LogFile
	if o.File != "" {
		if file, err = openLogFile(o.File); err != nil {
			return nil, nil, err
		}
		out = append(out, file)
	}
	if o.Switches == nil {
		o.Switches = new(LogSwitches)
	}
	var handler slog.Handler
	opts := &slog.HandlerOptions{Level: o.Least}
	if o.Format == "json" {
		handler = slog.NewJSONHandler(controls{out}, opts)
	} else {
		handler = slog.NewTextHandler(out, opts)
		if o.Lines || o.Stderr == nil && file == nil && isDevice(os.Stderr) {
			handler = linesHandler{handler, out}
		}
	}
	if o.Records != nil {
		records := slog.Handler(leveled{o.Records, o.Least})
		if file != nil {
			records = slog.NewMultiHandler(records, handler)
		}
		handler = records
	}
	return slog.New(switched{handler, o.Switches}), file, nil
}

// leveled is a handler of the records at a level or above.
type leveled struct {
	slog.Handler
	least slog.Leveler
}

// Enabled implements slog.Handler.
func (h leveled) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.least.Level() && h.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return leveled{h.Handler.WithAttrs(attrs), h.least}
}

// WithGroup implements slog.Handler.
func (h leveled) WithGroup(name string) slog.Handler {
	return leveled{h.Handler.WithGroup(name), h.least}
}

// controls escapes characters that JSON allows in strings but terminals obey: DEL and U+0080 to U+009F, which include
// the CSI (ECMA-48, 8.3.16), equivalent to ESC [.
type controls struct{ io.Writer }

// Write implements io.Writer.
func (w controls) Write(line []byte) (int, error) {
	is := func(r rune) bool { return r >= 0x7f && r < 0xa0 }
	at := bytes.IndexFunc(line, is)
	if at < 0 {
		return w.Writer.Write(line)
	}
	out := slices.Clone(line[:at])
	for _, r := range string(line[at:]) {
		if is(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	_, err := w.Writer.Write(out)
	return len(line), err
}

// isDevice reports whether a file is a terminal, or another device of characters.
func isDevice(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// linesHandler writes attributes of several lines behind their records.
type linesHandler struct {
	slog.Handler
	out io.Writer
}

// Handle implements slog.Handler.
func (h linesHandler) Handle(ctx context.Context, r slog.Record) error {
	short, behind := slog.NewRecord(r.Time, r.Level, r.Message, r.PC), ""
	r.Attrs(func(a slog.Attr) bool {
		text, isString := a.Value.Any().(string)
		err, isError := a.Value.Any().(error)
		if isError {
			text = err.Error()
		}
		if (isString || isError) && strings.Contains(text, "\n") {
			if isError { // the first line is the message
				var first string
				first, text, _ = strings.Cut(text, "\n")
				short.AddAttrs(slog.String(a.Key, first))
			}
			for line := range strings.Lines(strings.TrimRight(text, "\n")) {
				behind += "    " + strings.Map(printable, line)
			}
			behind += "\n"
		} else {
			short.AddAttrs(a)
		}
		return true
	})
	if behind == "" {
		return h.Handler.Handle(ctx, r)
	}
	if err := h.Handler.Handle(ctx, short); err != nil {
		return err
	}
	_, err := io.WriteString(h.out, behind)
	return err
}

// printable replaces characters that control a terminal.
func printable(r rune) rune {
	if r == '\n' || r == '\t' || unicode.IsPrint(r) {
		return r
	}
	return unicode.ReplacementChar
}

// WithAttrs implements slog.Handler.
func (h linesHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return linesHandler{h.Handler.WithAttrs(attrs), h.out}
}

// WithGroup implements slog.Handler.
func (h linesHandler) WithGroup(name string) slog.Handler {
	return linesHandler{h.Handler.WithGroup(name), h.out}
}

// Levels are the names of the log levels, from most to fewest records.
var Levels = []string{"debug", "info", "warn", "error"}

// ParseLevel returns the level with the given name; "" means info.
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

// tee writes to all its writers, even after an error: a closed terminal must not stop the log file.
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
