package process

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
)

// A measurement of memory costs the same for any number of threads of the program, and finds processes started by the
// program.
func TestFamily(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	f := processTreeOf(os.Getpid())
	if !slices.Contains(f, cmd.Process.Pid) {
		t.Fatalf("%v is without %d", f, cmd.Process.Pid)
	}
	f = processTree{os.Getpid(), cmd.Process.Pid}
	if f.residentBytes() <= 0 {
		t.Error("they have no memory")
	}
	few := testing.AllocsPerRun(10, func() { f.residentBytes() })
	end := make(chan struct{})
	defer close(end)
	for range 100 {
		ready := make(chan struct{})
		go func() {
			runtime.LockOSThread() // gives the goroutine a thread
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
