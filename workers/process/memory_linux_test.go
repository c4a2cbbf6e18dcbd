package process

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
)

// A look at the memory costs the same however many threads the program has, and the processes that
// it has started are found.
func TestFamily(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	f := familyOf(os.Getpid())
	if !slices.Contains(f, cmd.Process.Pid) {
		t.Fatalf("%v is without %d", f, cmd.Process.Pid)
	}
	f = family{os.Getpid(), cmd.Process.Pid}
	if f.residentBytes() <= 0 {
		t.Error("they have no memory")
	}
	few := testing.AllocsPerRun(10, func() { f.residentBytes() })
	end := make(chan struct{})
	defer close(end)
	for range 100 {
		ready := make(chan struct{})
		go func() {
			runtime.LockOSThread() // which gives it a thread of its own
			defer runtime.UnlockOSThread()
			close(ready)
			<-end
		}()
		<-ready
	}
	if many := testing.AllocsPerRun(10, func() { f.residentBytes() }); many > few+50 {
		t.Errorf("with 100 threads it allocates %v times, before %v", many, few)
	}
}
