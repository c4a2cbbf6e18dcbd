package tracing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines returns the records of a JSON log, each as "message key/suppressed".
func lines(t *testing.T, b *bytes.Buffer) (list []string) {
	t.Helper()
	for d := json.NewDecoder(b); ; {
		var r struct {
			Msg        string
			N          int
			Suppressed int
		}
		if err := d.Decode(&r); err == io.EOF {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%s %d/%d", r.Msg, r.N, r.Suppressed))
	}
}

func newTestLimiter() (*Limiter, *bytes.Buffer) {
	var out bytes.Buffer
	return NewLimiter(slog.New(slog.NewJSONHandler(&out, nil)), time.Second), &out
}

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, out := newTestLimiter()
		say := func(key string, n int) { l.Log(slog.LevelWarn, key, key, "n", n) }
		for n := range 100 { // 2.4 s, a record every 24 ms
			say("a", n)
			if n == 10 {
				say("b", n)
			}
			time.Sleep(24 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		say("a", 100)
		l.Close()
		l.Close()
		say("a", 101)
		want := "a 0/0, b 10/0, a 41/40, a 83/41, a 99/15, a 100/0"
		if got := strings.Join(lines(t, out), ", "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

func TestLimiterCloseLogsSuppressedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, out := newTestLimiter()
		for n := range 3 {
			l.Log(slog.LevelError, "a", "a", "n", n)
		}
		l.Log(slog.LevelDebug, "a", "not at this level")
		l.Close()
		if got := strings.Join(lines(t, out), ", "); got != "a 0/0, a 2/1" {
			t.Error(got)
		}
	})
}

func TestLimiterKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, out := newTestLimiter()
		for n := range 10 * maxKeys {
			l.Log(slog.LevelInfo, fmt.Sprint(n), "m")
		}
		held := func() int {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.keys)
		}
		if n := held(); n > maxKeys+1 {
			t.Errorf("%d keys", n)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := held(); n != 0 {
			t.Errorf("%d keys after their interval", n)
		}
		if n := len(lines(t, out)); n != maxKeys+2 {
			t.Errorf("%d records, want one for each key, and two for those that share one", n)
		}
		l.Close()
	})
}

func TestNewLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	var stderr bytes.Buffer
	log, closer, err := NewLog(LogOptions{Format: "json", Level: "warn", File: file, Stderr: &stderr})
	if err != nil {
		t.Fatal(err)
	}
	log.Info("no")
	log.Warn("yes", "n", 7)
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(data, stderr.Bytes()) {
		t.Errorf("the file has %q, stderr %q, %v", data, stderr.Bytes(), err)
	}
	if got := lines(t, &stderr); len(got) != 1 || got[0] != "yes 7/0" {
		t.Error(got)
	}
	for field, o := range map[string]LogOptions{
		"log.level": {Level: "loud"}, "log.format": {Format: "xml"}, "log.file": {File: filepath.Join(file, "x")},
	} {
		if _, _, err := NewLog(o); err == nil || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	stderr.Reset()
	forPeople, _, err := NewLog(LogOptions{Stderr: &stderr, Lines: true})
	if err != nil {
		t.Fatal(err)
	}
	forPeople.With("model", "m").Error("bad", "traceback", "File a\n\tx = 1\nlevel=INFO \x1b[2J\n", "n", 1)
	if _, got, _ := strings.Cut(stderr.String(),
		"level"); got != "=ERROR msg=bad model=m n=1\n    File a\n    \tx = 1\n    level=INFO \uFFFD[2J\n" {
		t.Errorf("%q", got)
	}
	stderr.Reset()
	forPeople.Info("bad", "error", errors.New("a = b\nFile c\n"), "n", 1)
	if _, got, _ := strings.Cut(stderr.String(), "level"); got != "=INFO msg=bad error=\"a = b\" n=1\n    File c\n" {
		t.Errorf("%q", got)
	}
	text, closer, err := NewLog(LogOptions{Stderr: &stderr})
	if err != nil {
		t.Fatal(err)
	}
	text.Info("plain")
	if err := closer.Close(); err != nil || !strings.Contains(stderr.String(), "msg=plain") {
		t.Errorf("%q, %v", stderr.String(), err)
	}
}

// TestLogRecords: a handler takes the place of standard error, with the levels of the log; the file stays.
func TestLogRecords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	var records, stderr bytes.Buffer
	least := new(slog.LevelVar)
	log, closer, err := NewLog(LogOptions{Level: "warn", Least: least, File: file, Stderr: &stderr,
		Records: slog.NewTextHandler(&records, &slog.HandlerOptions{Level: slog.LevelInfo})})
	if err != nil {
		t.Fatal(err)
	}
	log.Info("one")
	log.With("a", 1).Warn("two")
	least.Set(slog.LevelDebug)
	log.Info("three")
	log.Debug("four")
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if got := records.String(); err != nil || strings.Contains(got, "one") || !strings.Contains(got, "msg=two a=1") ||
		!strings.Contains(got, "three") || strings.Contains(got, "four") || stderr.Len() > 0 ||
		!strings.Contains(string(text), "msg=two a=1") || !strings.Contains(string(text), "four") {
		t.Errorf("records %s, file %s, standard error %s, %v", got, text, &stderr, err)
	}
}
