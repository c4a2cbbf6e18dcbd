//go:build !linux

package video

// growPacketPipe returns the size of a new pipe.
func growPacketPipe(int) int { return 16 << 10 }
