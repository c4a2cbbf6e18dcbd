//go:build !race

// The race detector needs more address space than a test here allows.

package frames_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"millrace/internal/servertest"
)

// unreading is the number of clients in TestUnreadAnswers.
const unreading = 30

// TestUnreadAnswersInLittleMemory: a server with a budget of 256 MiB survives thirty clients of each protocol that
// never read their answers, in an address space only slightly larger than the budget.
func TestUnreadAnswersInLittleMemory(t *testing.T) {
	const variable = "MILLRACE_TEST_UNREAD"
	if os.Getenv(variable) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(self, "-test.run=^TestUnreadAnswersInLittleMemory$", "-test.v")
		c.Env = append(os.Environ(), variable+"=1")
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "all are served") {
			t.Errorf("%v: %.3000s", err, out)
		}
		return
	}
	cfg := servertest.UnreadConfig(256 << 20)
	cfg.OwnProcess = true
	s, stop := servertest.RunWith(t, cfg)
	const room = 1 << 30 // Go does not return address space
	if err := syscall.Setrlimit(syscall.RLIMIT_AS,
		&syscall.Rlimit{Cur: mapped(t) + room, Max: mapped(t) + room}); err != nil {
		t.Fatal(err)
	}
	const size = 5 << 20
	for name, ask := range unread {
		t.Log(name)
		for _, payload := range [][]byte{bytes.Repeat([]byte{'"'}, size), make([]byte, size)} {
			var open []func()
			for range unreading {
				if end, err := ask(s, payload); err != nil {
					t.Logf("%s: %v", name, err) // refused
				} else {
					open = append(open, end)
				}
			}
			if payload[0] != 0 {
				servertest.Until(t, func() bool { return s.Memory().Stats().Leased > cfg.Memory.Budget/4 })
			}
			if err := servertest.IsServed(s); err != nil {
				t.Logf("%s: %v", name, err)
			}
			for _, end := range open {
				end()
			}
			servertest.Until(t, func() bool { // the collector releases replies that gRPC had not written
				runtime.GC()
				return s.Memory().Stats().Leased < cfg.Memory.Budget/16
			})
			if err := servertest.IsServed(s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if !t.Failed() {
		fmt.Println("all are served")
	}
}

// mapped returns the bytes of the process's address space.
func mapped(t *testing.T) uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseUint(strings.Fields(string(text))[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * uint64(os.Getpagesize())
}
