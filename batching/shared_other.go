//go:build !linux

package batching

import (
	"errors"
	"runtime"
)

// why this system has no shared memory
const sharedRefused = "shared memory of batches is implemented for Linux, and this system is " + runtime.GOOS

func newSegment(int) (*Segment, error) { return nil, errors.New(sharedRefused) }

func (*Segment) unmap() {}
