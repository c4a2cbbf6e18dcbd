package video

import (
	"cmp"

	"millrace/internal/child"
)

const (
	// ownSpace is the address space of ffmpeg without pictures: some 430 MiB are its libraries. With a limit just below what
	// it needs it does not fail but tries for ever, so this is generous.
	ownSpace = 1 << 30
	// spacePerPixel is for the 16 pictures of 1.5 bytes a pixel that a codec keeps at most, and those that are scaled.
	spacePerPixel = 32
	// ClientNice is the nice value of an ffmpeg that decodes what a client sends or names, beside that of this process: when
	// there are more threads than processors, it gets about a tenth of the time of a thread of the server.
	ClientNice = 10
	// defaultMaxPixels is for options without MaxPixels.
	defaultMaxPixels = 1 << 26
	// maxFiles is enough for a playlist with 50 variants.
	maxFiles = 256
)

// ffmpegLimits are those of an ffmpeg that decodes pictures of so many pixels, 0 if their size is not bounded, with one
// thread. With hardware it gets none: drivers reserve large parts of the address space, and write caches.
func ffmpegLimits(pixels int, hardware string) child.Limits {
	if hardware != "" {
		return child.Limits{}
	}
	return child.Limits{AddressSpace: ownSpace + spacePerPixel*uint64(cmp.Or(pixels, defaultMaxPixels)), Files: maxFiles, NoWrites: true}
}

// Memory is about what an ffmpeg that decodes pictures of so many pixels needs of its own, in bytes. 12 MiB were seen at
// 640x480, besides 44 MiB of libraries that all share.
func Memory(pixels int) int64 { return 12<<20 + 16*int64(pixels) }

// needsMemory is the detail of an error of an ffmpeg that has reached its limit.
const needsMemory = "ffmpeg needs more memory than it may use for pictures of this size: raise limits.max_pixels, or send a smaller picture"

// noMemory is ffmpeg's message for ENOMEM.
const noMemory = "Cannot allocate memory"
