package ssf

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
)

// logFile is the file of the log, in the working folder.
const logFile = "ssf.log"

// earlierLog has the lines before those of logFile, once logFile would have more than maxLogFile bytes.
const (
	earlierLog = logFile + ".1"
	maxLogFile = 64 << 20
)

// log writes records in the form of Simple Server Framework: to standard output, errors to standard error, and all to
// logFile. log is safe for concurrent use, and a nil log writes nothing.
type log struct {
	out, errs           io.Writer
	outLevel, fileLevel slog.Level
	now                 func() time.Time

	mu     sync.Mutex
	folder string
	file   *os.File // nil = none
	size   int      // of file
	most   int      // greatest size of file
}

// openLog begins a new log file. Without a file, the log begins with the reason.
func openLog(out, errs io.Writer, outLevel, fileLevel slog.Level) *log {
	l := &log{out: out, errs: errs, outLevel: outLevel, fileLevel: fileLevel, now: time.Now, most: maxLogFile}
	folder, err := os.Getwd()
	var file *os.File
	if err == nil {
		file, err = os.OpenFile(filepath.Join(folder, logFile),
			os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o640)
	}
	if err == nil {
		if info, fault := file.Stat(); fault != nil || !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a regular file", logFile)
		} else {
			err = file.Truncate(0)
		}
		if err != nil {
			_ = file.Close()
		}
	}
	if err != nil {
		l.print(slog.LevelWarn, "the log has no file: %v", err)
		return l
	}
	l.folder, l.file = folder, file
	return l
}

// turn renames a full file, and begins the next one. The caller holds mu.
func (l *log) turn() {
	_ = l.file.Close() // nothing is buffered
	l.file, l.size = nil, 0
	name := filepath.Join(l.folder, logFile)
	err := os.Rename(name, filepath.Join(l.folder, earlierLog))
	if err == nil {
		l.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o640)
	}
	if err != nil {
		_, _ = io.WriteString(l.errs, logLine(l.now(), os.Getpid(), slog.LevelWarn,
			fmt.Sprintf("the log has no file any more: %v", err)))
	}
}

func (l *log) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.file.Close() // nothing is buffered; file may be nil
	l.file = nil
}

// least returns the lowest level that is written.
func (l *log) least() slog.Level { return min(l.outLevel, l.fileLevel) }

// print writes a record of this process.
func (l *log) print(level slog.Level, format string, args ...any) {
	if l != nil {
		l.write(l.now(), os.Getpid(), level, fmt.Sprintf(format, args...))
	}
}

// note writes a record to the file alone, since the record reaches the caller in another way.
func (l *log) note(level slog.Level, format string, args ...any) {
	if l == nil || level < l.fileLevel {
		return
	}
	line := logLine(l.now(), os.Getpid(), level, fmt.Sprintf(format, args...))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.toFile(line)
}

// write writes a record of a process.
func (l *log) write(at time.Time, pid int, level slog.Level, text string) {
	line := logLine(at, pid, level, text)
	l.mu.Lock()
	defer l.mu.Unlock()
	if level >= l.outLevel {
		to := l.out
		if level >= slog.LevelError {
			to = l.errs
		}
		_, _ = io.WriteString(to, line)
	}
	if level >= l.fileLevel {
		l.toFile(line)
	}
}

func (l *log) toFile(line string) {
	if l.file != nil && l.size > 0 && l.size+len(line) > l.most {
		l.turn()
	}
	if l.file != nil {
		n, _ := l.file.WriteString(line)
		l.size += n
	}
}

// logLine returns the line of a record. Lines after the first are indented, so that no text looks like another record.
func logLine(at time.Time, pid int, level slog.Level, text string) string {
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, strings.TrimRight(text, "\n"))
	return fmt.Sprintf("%s,%03d %-10d %-8s  %s\n", at.Format(time.DateTime), at.Nanosecond()/1e6, pid, levelName(level),
		strings.ReplaceAll(text, "\n", "\n    "))
}

// levels are the levels of the log by the names of the options.
var levels = map[string]slog.Level{"DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARNING": slog.LevelWarn,
	"ERROR": slog.LevelError, "CRITICAL": slog.LevelError}

func levelName(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "ERROR"
	case level >= slog.LevelWarn:
		return "WARNING"
	case level >= slog.LevelInfo:
		return "INFO"
	}
	return "DEBUG"
}

// records is a slog.Handler that writes the records of the server and of the application to a log. Records that
// monitors of Simple Server Framework look for get the words of Simple Server Framework.
type records struct {
	log   *log
	attrs []slog.Attr
	group string
}

// Enabled implements slog.Handler.
func (h records) Enabled(_ context.Context, level slog.Level) bool { return level >= h.log.least() }

// WithAttrs implements slog.Handler.
func (h records) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)
	return h
}

// WithGroup implements slog.Handler.
func (h records) WithGroup(name string) slog.Handler {
	h.group = cmp.Or(h.group, name)
	return h
}

// Handle implements slog.Handler.
func (h records) Handle(_ context.Context, r slog.Record) error {
	attrs := h.attrs
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs[:len(attrs):len(attrs)], a)
		return true
	})
	value := func(key string) (v slog.Value, ok bool) {
		for _, a := range attrs {
			if a.Key == key {
				return a.Value, true
			}
		}
		return v, false
	}
	if pid, ok := value("pid"); ok {
		if _, ok := value("instance"); ok { // of the application
			h.log.write(r.Time, int(pid.Int64()), r.Level, r.Message)
			return nil
		}
	}
	var rest strings.Builder
	for _, a := range attrs {
		fmt.Fprintf(&rest, " %s=%v", a.Key, a.Value)
	}
	text := r.Message + rest.String()
	reason, _ := value("error")
	switch r.Message {
	case "the server is ready":
		text = "> Dispatcher ready:" + rest.String()
	case "the program at the root has not started":
		text = fmt.Sprintf("Dispatcher failed to start: %v", reason)
		h.log.fails(reason.Any())
	case "the program is replaced", "the program has ended":
		text = fmt.Sprintf("The process of the application is not alive: %v", reason)
		h.log.fails(reason.Any())
	case "worker abandoned after too many restarts":
		restarts, _ := value("restarts")
		text = fmt.Sprintf("The application's health check kept failing after %v restarts", restarts)
	}
	h.log.write(r.Time, os.Getpid(), r.Level, text)
	return nil
}

// firstLine returns the text of an error without a traceback, which the log has already.
func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// fails records that the application has failed.
func (l *log) fails(reason any) {
	if l == nil {
		return
	}
	if err, ok := reason.(error); ok {
		code, known := resultCode(err)
		if !known {
			code = applicationStatus
		}
		l.print(slog.LevelError, "Application has errored (%d): %s", code, firstLine(err))
	}
}

// maxLine is the greatest length of a line of a step, in bytes; a longer line is passed on in pieces.
const maxLine = 64 << 10

// stepLines takes the standard error of a step: records go to the log, other lines to rest.
type stepLines struct {
	log  *log
	rest io.Writer
	part []byte // a line without its end
}

// Write implements io.Writer.
func (s *stepLines) Write(b []byte) (int, error) {
	s.part = append(s.part, b...)
	for {
		end := bytes.IndexByte(s.part, '\n') + 1
		if end == 0 && len(s.part) > maxLine {
			end = maxLine
		}
		if end == 0 {
			return len(b), nil
		}
		s.line(s.part[:end])
		s.part = s.part[end:]
	}
}

// flush passes on what has no end of line.
func (s *stepLines) flush() {
	if len(s.part) > 0 {
		s.line(s.part)
	}
	s.part = nil
}

func (s *stepLines) line(line []byte) {
	var record struct {
		Log *struct {
			Level, PID int
			Message    string
		} `json:"ssf_log"`
	}
	if s.log == nil || !bytes.HasPrefix(line, []byte(`{"ssf_log"`)) || json.Unmarshal(line, &record) != nil ||
		record.Log == nil {
		_, _ = s.rest.Write(line)
		return
	}
	// levels of Python are 10 for DEBUG, 20, 30 and 40
	s.log.write(s.log.now(), record.Log.PID, slog.Level(record.Log.Level/10*4-8), record.Log.Message)
}
