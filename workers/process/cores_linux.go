package process

import (
	"fmt"

	"golang.org/x/sys/unix"

	"millrace/stream"
)

// bind limits a just started process, and its later children, to the given processors.
func bind(pid int, cores []int) error {
	var set unix.CPUSet
	for _, c := range cores {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(pid, &set); err != nil {
		return &stream.Error{Code: stream.InvalidArgument, Field: "cores", Msg: fmt.Sprintf("%v cannot be used: %v",
			cores, err), Err: err}
	}
	return nil
}
