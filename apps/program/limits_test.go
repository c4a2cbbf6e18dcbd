package program

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/child"
	"millrace/internal/testneeds"
)

// run runs a script that may write in the folder dir. The script is ended when the test fails to end.
func run(t *testing.T, dir string, limits Limits, script string) (string, error) {
	t.Helper()
	p := &Program{Args: []string{"sh", "-c", script}, Dir: dir, Write: []string{dir}, Limit: 5 * time.Minute,
		LimitName: "--limit", Limits: limits}
	return p.Run(t.Context())
}

// TestLimits: a program that exceeds a limit ends, and the error names the limit and the flag. Each limit counts all
// processes together, except where the kernel itself refuses a process or a file.
func TestLimits(t *testing.T) {
	const adopts = "PROGRAM_TEST_ADOPTS"
	if os.Getenv(adopts) == "" { // Adopt changes the whole process
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLimits$", "-test.v")
		c.Env = append(os.Environ(), adopts+"=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	if err := child.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	testneeds.Program(t, "setsid")
	processes := []string{"has more than 20 processes and threads: raise --max-processes"}
	if os.Geteuid() != 0 { // the kernel refuses more
		processes = []string{"20 processes and threads may run", "--max-processes"}
	}
	// Each process takes memory after the one before has printed its line.
	const keep, all = `python3 -c "b = bytearray(40 << 20); print('kept', flush=True); import time; time.sleep(1000)"`,
		"keep | (read x; echo $x; keep | (read x; echo $x; keep))"
	for name, c := range map[string]struct {
		script string
		want   []string
	}{
		"memory of a process": {`exec python3 -c "b = bytearray(b'x') * (150 << 20); import time; time.sleep(1000)"`,
			[]string{"needs more than 100MiB of memory: raise --max-memory"}},
		"reserved memory": {`exec python3 -c "bytearray(300 << 20)"`,
			[]string{"MemoryError", "(a process may reserve 260MiB of memory: --max-memory raises the limit)"}},
		"stacks": {`exec python3 -c "
import threading, time
threading.stack_size(64 << 20)
for _ in range(10): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"`,
			[]string{"can't start new thread", "(20 processes and threads may run, and each process may reserve 260MiB " +
				"of memory: --max-processes and --max-memory raise the limits; programs that this user starts meanwhile " +
				"count, too)"}},
		"memory of processes": {"keep() { " + keep + "; }; " + all,
			[]string{"needs more than 100MiB of memory: raise --max-memory", "kept"}},
		"memory of an orphan": {"keep() { setsid " + keep + "; }; (" + all + " &); sleep 1000",
			[]string{"needs more than 100MiB of memory: raise --max-memory", "kept"}},
		"memory in a file": {`exec python3 -c "
import os, time
fds = [os.memfd_create(str(n)) for n in range(15)]
for fd in fds: os.write(fd, bytes(9 << 20))
time.sleep(1000)"`,
			[]string{"needs more than 100MiB of memory: raise --max-memory"}},
		"removed files": {`exec python3 -c "
import os, time
for name in '1', '2', '3':
    fd = os.open(name, os.O_CREAT | os.O_WRONLY)
    os.remove(name)
    os.write(fd, bytes(4 << 20))
time.sleep(1000)"`,
			[]string{"writes more than 10MiB to the disk: raise --max-disk"}},
		"a segment": {`exec python3 -c "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
size = lambda n: ctypes.c_size_t(n)
small = libc.shmget(0, size(64 << 10), 0o1600)
large = [n for n in (1 + (64 << 10), 100 << 20, 1 << 32) if libc.shmget(0, size(n), 0o1600) >= 0]
exit(7 if small >= 0 == libc.shmctl(small, 0, None) and not large else 0)"`, []string{"exit status 7"}},
		"a file": {"exec head -c 20000000 /dev/zero >file",
			[]string{"--max-disk"}},
		"a file of a process": {"head -c 20000000 /dev/zero >file; exit $?", []string{"--max-disk"}},
		"files": {"i=0; while :; do i=$((i + 1)); head -c 1000000 /dev/zero >$i; done",
			[]string{"writes more than 10MiB to the disk: raise --max-disk"}},
		"empty files": {"i=0; while :; do i=$((i + 1)); : >$i; done",
			[]string{"writes more than 10MiB to the disk: raise --max-disk"}},
		"deep folders": {`python3 -c "
import os, time
for _ in range(30): os.mkdir('0' * 200); os.chdir('0' * 200)
time.sleep(1000)"`,
			[]string{"writes more than 10MiB to the disk: raise --max-disk"}},
		"temporary files": {"cd $TMPDIR; for i in 1 2 3 4; do head -c 4000000 /dev/zero >$i; done",
			[]string{"writes more than 10MiB to the disk: raise --max-disk"}},
		"processes": {"while :; do sleep 1000 & sleep 0.001; done", processes},
		"threads": {`python3 -c "
import threading, time
threading.stack_size(64 << 10)
for _ in range(40): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
time.sleep(1000)"`, processes},
	} {
		_, err := run(t, t.TempDir(), Limits{Memory: 100 << 20, Disk: 10 << 20, Processes: 20}, c.script)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

// TestMappedFile: memory in a file that is mapped counts once.
func TestMappedFile(t *testing.T) {
	script := testneeds.Python(t) + ` -c "
import mmap, os, time
fd = os.memfd_create('file')
os.truncate(fd, 60 << 20)
memory = mmap.mmap(fd, 60 << 20)
for _ in range(60): memory.write(bytes(1 << 20))
time.sleep(0.4)"` // longer than lookPause
	if out, err := run(t, t.TempDir(), Limits{Memory: 100 << 20}, script); err != nil {
		t.Errorf("%s %v", out, err)
	}
}

// TestStacks: the stacks of threads are reserved, not used, and do not count as memory.
func TestStacks(t *testing.T) {
	script := testneeds.Python(t) + ` -c "
import threading
threading.stack_size(8 << 20)
end = threading.Event()
threads = [threading.Thread(target=end.wait) for _ in range(200)]
for t in threads: t.start()
end.set()
for t in threads: t.join()"`
	if out, err := run(t, t.TempDir(), Limits{Memory: 200 << 20}, script); err != nil {
		t.Errorf("%s %v", out, err)
	}
}

// TestWithinLimits: old files and removed files do not count.
func TestWithinLimits(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "old"), make([]byte, 20<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	const script = "for i in 1 2 3 4; do head -c 5000000 /dev/zero >$i; rm $i; done; head -c 5000000 /dev/zero >new"
	if out, err := run(t, dir, Limits{Disk: 10 << 20}, script); err != nil {
		t.Errorf("%s %v", out, err)
	}
	// A folder counts once, even if named twice or by a link.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	w := newWatch(Limits{Disk: 1}, []string{filepath.Join(dir, "old"), link, dir, dir + "x"})
	if w.before < 25<<20-1<<19 || w.before > 40<<20 || w.full(0) {
		t.Errorf("%d bytes, %q", w.before, w.folders)
	}
}

// TestDefaults: no limit is missing.
func TestDefaults(t *testing.T) {
	if d := (Limits{Disk: 7}).orDefaults(); d.Memory < 64<<20 || d.Disk != 7 || d.Processes != Defaults().Processes {
		t.Errorf("%+v", d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newWatch(Defaults(), nil).run(ctx, nil); err != nil {
		t.Error(err)
	}
}
