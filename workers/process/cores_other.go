//go:build !linux

package process

import "millrace/stream"

func bind(int, []int) error {
	return stream.Errorf(stream.Unsupported, "cores", "is set, but is implemented for Linux: leave it out")
}
