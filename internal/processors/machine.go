package processors

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// MemoryLimit returns the bytes that this process may use, and what limits it; 0 = not
// known.
func MemoryLimit() (limit int64, where string) {
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "MemTotal:" {
				kib, _ := strconv.ParseInt(f[1], 10, 64)
				limit, where = kib<<10, "the machine"
			}
		}
	}
	own := "/"
	if text, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(text)) {
			if path, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found {
				own = path
			}
		}
	}
	for dir := own; ; dir = filepath.Dir(dir) { // each level may have a limit
		text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", dir, "memory.max"))
		if n, e := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && e == nil &&
			(limit == 0 || n < limit) {
			limit, where = n, "the container"
		}
		if dir == "/" || dir == "." {
			return limit, where
		}
	}
}
