package ssf

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testLog opens a log in a new working folder.
func testLog(t *testing.T, outLevel, fileLevel slog.Level) (l *log, out, errs *bytes.Buffer) {
	t.Helper()
	t.Chdir(t.TempDir())
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	l = openLog(out, errs, outLevel, fileLevel)
	t.Cleanup(l.close)
	l.now = func() time.Time { return time.Date(2026, 2, 3, 4, 5, 6, 7_000_000, time.UTC) }
	return l, out, errs
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestLogLines: the form of Simple Server Framework, with a level for the file and a level for the output, and errors
// on standard error. No text looks like another record, or controls a terminal.
func TestLogLines(t *testing.T) {
	l, out, errs := testLog(t, slog.LevelWarn, slog.LevelInfo)
	l.write(l.now(), 123, slog.LevelInfo, "MyApp startup")
	l.write(l.now(), 12345678901, slog.LevelWarn, "a\n2026-02-03 b\x1b[31m\n")
	l.write(l.now(), 1, slog.LevelDebug, "debug")
	l.write(l.now(), 4, slog.LevelError, "c")
	l.note(slog.LevelError, "in the file alone")
	const warning = "2026-02-03 04:05:06,007 12345678901 WARNING   a\n    2026-02-03 b\uFFFD[31m\n"
	const fault = "2026-02-03 04:05:06,007 4          ERROR     c\n"
	if out.String() != warning || errs.String() != fault {
		t.Errorf("printed %q, %q", out, errs)
	}
	if text := read(t, logFile); !strings.HasPrefix(text, "2026-02-03 04:05:06,007 123        INFO      MyApp startup\n"+
		warning+fault) || strings.Contains(text, "debug") || !strings.HasSuffix(text, "ERROR     in the file alone\n") {
		t.Errorf("the file is %s", text)
	}
	var none *log
	none.print(slog.LevelError, "nothing")
	none.note(slog.LevelError, "nothing")
	none.close()
}

// TestLogFile: a log begins anew, and does not follow a link.
func TestLogFile(t *testing.T) {
	l, _, _ := testLog(t, slog.LevelInfo, slog.LevelInfo)
	l.print(slog.LevelInfo, "old")
	second := openLog(&bytes.Buffer{}, &bytes.Buffer{}, slog.LevelInfo, slog.LevelInfo)
	second.print(slog.LevelInfo, "new")
	second.close()
	if text := read(t, logFile); strings.Contains(text, "old") || !strings.Contains(text, "new") {
		t.Errorf("the file is %s", text)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := errors.Join(os.WriteFile(other, []byte("kept"), 0o600), os.Remove(logFile),
		os.Symlink(other, logFile)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	linked := openLog(&out, &out, slog.LevelInfo, slog.LevelInfo)
	linked.print(slog.LevelInfo, "goes on")
	if !strings.Contains(out.String(), "the log has no file: ") || !strings.Contains(out.String(), "goes on") ||
		read(t, other) != "kept" {
		t.Errorf("printed %s, the other file is %s", &out, read(t, other))
	}
}

// TestLogIsBounded: a full file gets another name, and the log goes on without a file when the names are taken.
func TestLogIsBounded(t *testing.T) {
	l, _, errs := testLog(t, slog.LevelError, slog.LevelInfo)
	l.most = 1000
	for i := range 100 {
		l.print(slog.LevelInfo, "line %d", i)
	}
	earlier, now := read(t, earlierLog), read(t, logFile)
	if len(earlier) > l.most || len(now) > l.most || len(earlier)+len(now) < l.most ||
		!strings.HasSuffix(now, "line 99\n") {
		t.Errorf("the files are\n%s\n%s", earlier, now)
	}
	if err := errors.Join(os.Remove(earlierLog), os.Mkdir(earlierLog, 0o700)); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		l.print(slog.LevelInfo, "line %d", i)
	}
	if n := strings.Count(errs.String(), "the log has no file any more: "); n != 1 {
		t.Errorf("%d warnings: %s", n, errs)
	}
}

// TestRecords: records of the application have the application's process, and events of the server have the words
// that monitors look for.
func TestRecords(t *testing.T) {
	l, out, errs := testLog(t, slog.LevelInfo, slog.LevelInfo)
	server := slog.New(records{log: l})
	app := server.With("model", "m", "instance", 2)
	app.Info("MyApp request", "logger", "x", "pid", 77)
	app.Debug("hidden", "pid", 77)
	server.Info("the server is ready", "http", "127.0.0.1:1")
	server.Info("another event", "a", 1)
	for _, want := range []string{" 77         INFO      MyApp request\n", "INFO      > Dispatcher ready: http=127.0.0.1:1\n",
		"INFO      another event a=1\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if strings.Contains(out.String(), "hidden") {
		t.Errorf("printed %s", out)
	}
	server.Warn("the program is replaced", "model", "m", "error", errors.New("boom\nTraceback"))
	server.Error("worker abandoned after too many restarts", "restarts", 3)
	server.Error("the program at the root has not started", "error", errors.New("no"))
	for _, want := range []string{"is not alive: boom\n    Traceback\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	for _, want := range []string{"Application has errored (32): boom\n", "health check kept failing after 3 restarts\n",
		"Dispatcher failed to start: no\n", "Application has errored (32): no\n"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("no %q in %s", want, errs)
		}
	}
}

// TestStepLines: records of a step go to the log, and all other output to standard error, whatever the pieces are.
func TestStepLines(t *testing.T) {
	l, out, _ := testLog(t, slog.LevelInfo, slog.LevelInfo)
	text := `{"ssf_log": {"level": 20, "pid": 5, "message": "MyApp build\nsecond"}}` + "\nplain\n" +
		`{"ssf_log": {"level": 10, "pid": 5, "message": "hidden"}}` + "\n" + `{"ssf_log": 1}` + "\nend"
	for _, size := range []int{1, 7, len(text)} {
		var rest bytes.Buffer
		out.Reset()
		s := &stepLines{log: l, rest: &rest}
		for at := 0; at < len(text); at += size {
			_, _ = s.Write([]byte(text[at:min(at+size, len(text))]))
		}
		s.flush()
		if rest.String() != "plain\n{\"ssf_log\": 1}\nend" || out.String() !=
			"2026-02-03 04:05:06,007 5          INFO      MyApp build\n    second\n" {
			t.Errorf("pieces of %d: %q, %q", size, out, &rest)
		}
	}
	var rest bytes.Buffer
	s := &stepLines{log: l, rest: &rest}
	_, _ = s.Write(bytes.Repeat([]byte("x"), 3*maxLine))
	if len(s.part) > maxLine {
		t.Errorf("%d bytes are kept", len(s.part))
	}
}
