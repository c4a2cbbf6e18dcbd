//go:build linux

package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/child"
	"millrace/internal/testneeds"
	"millrace/stream"
	"millrace/workers"
)

// The count of the program's own cgroup decides, of both versions and from inside a container; without a cgroup, the
// machine's count decides.
func TestOOMFile(t *testing.T) {
	const events, control, vmstat = "low 0\nmax 5\noom 2\noom_kill 3\noom_group_kill 9\n",
		"oom_kill_disable 0\nunder_oom 0\noom_kill 4\n", "pgfault 9\noom_kill 7\nx 8\n"
	for _, c := range []struct {
		name   string
		cgroup string
		files  map[string]string
		want   string
		count  int64
	}{
		{"v2", "0::/a/b\n", map[string]string{"sys/fs/cgroup/a/b/memory.events": events,
			"sys/fs/cgroup/memory.events": events, "proc/vmstat": vmstat}, "sys/fs/cgroup/a/b/memory.events", 3},
		{"v2 in a container", "0::/\n", map[string]string{"sys/fs/cgroup/memory.events": events,
			"proc/vmstat": vmstat}, "sys/fs/cgroup/memory.events", 3},
		{"v1", "9:name=systemd:/\n4:cpu,memory:/a\n0::/\n",
			map[string]string{"sys/fs/cgroup/memory/a/memory.oom_control": control, "proc/vmstat": vmstat},
			"sys/fs/cgroup/memory/a/memory.oom_control", 4},
		{"v1 in a container", "4:memory:/docker/a\n",
			map[string]string{"sys/fs/cgroup/memory/memory.oom_control": control, "proc/vmstat": vmstat},
			"sys/fs/cgroup/memory/memory.oom_control", 4},
		{"both", "4:cpu:/a\n0::/a\n", map[string]string{"sys/fs/cgroup/unified/a/memory.events": events},
			"sys/fs/cgroup/unified/a/memory.events", 3},
		{"old kernel", "4:memory:/a\n", map[string]string{"sys/fs/cgroup/memory/a/memory.oom_control": "under_oom 0\n",
			"proc/vmstat": vmstat}, "proc/vmstat", 7},
		{"no cgroup", "", map[string]string{"proc/vmstat": vmstat}, "proc/vmstat", 7},
		{"nothing", "0::/\nnonsense\n", map[string]string{"proc/vmstat": "pgfault 9\noom_kill x\n"}, "", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			write := func(name, text string) {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.cgroup != "" {
				write("proc/5/cgroup", c.cgroup)
			}
			for name, text := range c.files {
				write(name, text)
			}
			got := oomFile(root, 5)
			if n := oomCount(got); strings.TrimPrefix(got, root+"/") != c.want || n != c.count {
				t.Errorf("%q with %d, want %q with %d", got, n, c.want, c.count)
			}
		})
	}
}

// A killed child counts as killed for lack of memory if the kernel has killed a process in the seconds before, even
// without a look at the count in between.
func TestOOMIsRecent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.events")
	count := func(n int) {
		if err := os.WriteFile(file, fmt.Appendf(nil, "oom_kill %d\n", n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	second := func(n int) stream.Instant { return at(time.Duration(n) * time.Second) }
	for _, c := range []struct {
		name  string
		kills []int // counts at looks, one each second; the end of the child looks at the last count
		want  bool
	}{
		{"never", []int{5, 5, 5}, false},
		{"before the start", []int{5}, false},
		{"not looked at", []int{5, 6}, true},
		{"looked at", []int{5, 6, 6}, true},
		{"looked at much earlier", append([]int{5, 6}, slices.Repeat([]int{6}, 10)...), false},
		{"the cgroup is gone", []int{5, 6, -1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var o oom
			for i, n := range c.kills {
				if n < 0 {
					_ = os.Remove(file)
				} else {
					count(n)
				}
				if i < len(c.kills)-1 || i == 0 {
					o.look(file, oomCount(file), second(i))
				}
			}
			got := o.recent(second(len(c.kills) - 1))
			if got != c.want {
				t.Errorf("%v", got)
			}
			cause, err := explain(&child.ExitError{Signal: syscall.SIGKILL}, got)
			if (cause == "oom") != c.want || strings.Contains(err.Error(),
				"probably by the kernel because memory ran out") != c.want {
				t.Errorf("%s: %v", cause, err)
			}
		})
	}
}

// limitedGroup makes a memory cgroup with a limit, and returns the file of the cgroup's processes.
func limitedGroup(t *testing.T, limit int) string {
	t.Helper()
	file := oomFile("/", os.Getpid())
	name, swap := map[string][2]string{
		"memory.oom_control": {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"},
		"memory.events":      {"memory.max", "memory.swap.max"},
	}[filepath.Base(file)], ""
	dir := filepath.Join(filepath.Dir(file), fmt.Sprintf("millrace-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); name[0] == "" || err != nil {
		t.Skipf("no memory cgroup can be made here, so that only TestOOMFile and TestOOMIsRecent test what is "+
			"recognised: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if swap = "0"; name[0] == "memory.limit_in_bytes" {
		swap = fmt.Sprint(limit)
	}
	if err := os.WriteFile(filepath.Join(dir, name[0]), fmt.Append(nil, limit), 0o600); err != nil {
		t.Skipf("a memory cgroup cannot be limited here, so that only TestOOMFile and TestOOMIsRecent test what is "+
			"recognised: %v", err)
	}
	_ = os.WriteFile(filepath.Join(dir, name[1]), []byte(swap), 0o600) // not every machine has swap
	return filepath.Join(dir, "cgroup.procs")
}

// When the kernel kills a program for lack of memory, the error of the request names the lack, and equal input is
// refused; when a user kills the program, neither happens.
func TestKilledByTheKernel(t *testing.T) {
	group := limitedGroup(t, 100<<20)
	program, err := filepath.Abs("testdata/child.py")
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "limited")
	testneeds.WriteProgram(t, script, "#!/bin/sh\necho $$ >"+group+"\nexec "+program+"\n")
	s := load(t, "any", func(c *workers.Config) { c.Source = script }).open(stream.Options{})
	for _, c := range []struct{ do, says, cause string }{
		{"kill", "was killed by SIGKILL, which another process sent", "killed"},
		{"grow", "was killed, probably by the kernel because memory ran out (OOM): give it less at once " +
			"(batching.max_size", "oom"},
		{"grow", "refuse: an equal request ended the model's program", ""},
	} {
		s.submit(stream.Frame{Codec: stream.Opaque, Params: stream.Params{"do": c.do}})
		if got := s.next(); got.Outcome != stream.Failed || !strings.Contains(got.Err.Error(), c.says) {
			t.Errorf("%s: %v, %v, want %q", c.do, got.Outcome, got.Err, c.says)
		}
		if c.cause != "" && s.group.Stats().Processes.Ended[c.cause] != 1 {
			t.Errorf("%s: ends %v", c.do, s.group.Stats().Processes.Ended)
		}
	}
}
