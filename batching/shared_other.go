//go:build !linux

package batching

import (
	"errors"
	"runtime"
)

const sharedRefused = "shared memory of batches is implemented for Linux, and this system is " + runtime.GOOS // why there is none

func newSegment(int) (*Segment, error) { return nil, errors.New(sharedRefused) }

func (*Segment) unmap() {}
