package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cpu returns the processor time used by this process.
func cpu() time.Duration { return usage(syscall.RUSAGE_SELF) }

func usage(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// tick is the unit of /proc/stat, fixed by Linux for programs.
const tick = 10 * time.Millisecond

// machineTime returns the busy time of all processors, 0 if unknown, and the processor time of this process and its
// ended children.
func machineTime() (busy, own time.Duration, now time.Time) {
	own, now = cpu()+usage(syscall.RUSAGE_CHILDREN), time.Now()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, own, now
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, f := range strings.Fields(line) {
		if i == 0 || i == 4 || i == 5 || i > 8 { // the name, idle, waiting for disks, guests (already counted)
			continue
		}
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, own, now
		}
		busy += time.Duration(n) * tick
	}
	return busy, own, now
}
