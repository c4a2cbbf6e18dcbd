package process

import (
	"fmt"

	"golang.org/x/sys/unix"

	"millrace/stream"
)

// bind lets a process that was just started, and what it starts, run on some processors only.
func bind(pid int, cores []int) error {
	var set unix.CPUSet
	for _, c := range cores {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(pid, &set); err != nil {
		return &stream.Error{Code: stream.InvalidArgument, Field: "cores", Msg: fmt.Sprintf("%v cannot be used: %v", cores, err), Err: err}
	}
	return nil
}
