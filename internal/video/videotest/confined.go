package videotest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/child"
)

// NeedSandbox skips a test where ffmpeg cannot be confined.
func NeedSandbox(t testing.TB) {
	t.Helper()
	if err := child.SandboxError(); err != nil {
		t.Skip(err)
	}
}

// Confined waits until this process has a child ffmpeg, and reports whether all child ffmpegs are confined.
func Confined(t testing.TB) bool {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // no event to wait for
		list, err := filepath.Glob("/proc/[0-9]*/status")
		if err != nil {
			t.Fatal(err)
		}
		found, free := 0, 0
		for _, name := range list {
			text, err := os.ReadFile(name)
			if err != nil {
				continue // the child has ended
			}
			fields := map[string]string{}
			for line := range strings.Lines(string(text)) {
				key, value, _ := strings.Cut(line, ":")
				fields[key] = strings.TrimSpace(value)
			}
			if fields["Name"] != "ffmpeg" || fields["PPid"] != fmt.Sprint(os.Getpid()) ||
				strings.HasPrefix(fields["State"], "Z") {
				continue
			}
			found++
			if fields["Seccomp"] != "2" {
				free++
			}
		}
		if found > 0 {
			return free == 0
		}
		if time.Now().After(end) {
			t.Fatal("no ffmpeg runs")
		}
	}
}
