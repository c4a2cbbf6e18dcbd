package video

import (
	"cmp"

	"millrace/internal/child"
)

const (
	// ownSpace is the address space of ffmpeg without pictures; the libraries take some 430 MiB. The limit is
	// generous: with a limit just below the need, ffmpeg does not fail but retries for ever.
	ownSpace = 1 << 30
	// spacePerPixel is for the 16 pictures of 1.5 bytes a pixel kept at most by a codec, and for the scaled pictures.
	spacePerPixel = 32
	// ClientNice is the nice value, relative to this process, of an ffmpeg that decodes data sent or named by a
	// client: with more threads than processors, ffmpeg's thread gets about a tenth of the time of a server thread.
	ClientNice = 10
	// defaultMaxPixels is for options without MaxPixels.
	defaultMaxPixels = 1 << 26
	// maxFiles is enough for a playlist with 50 variants.
	maxFiles = 256
)

// ffmpegLimits returns the limits of an ffmpeg that decodes with one thread. pixels is the largest picture, 0 for no
// bound. With hardware there are no limits: drivers reserve large parts of the address space, and write caches.
func ffmpegLimits(pixels int, hardware string) child.Limits {
	if hardware != "" {
		return child.Limits{}
	}
	return child.Limits{AddressSpace: ownSpace + spacePerPixel*uint64(cmp.Or(pixels, defaultMaxPixels)),
		Files: maxFiles, NoWrites: true}
}

// Memory estimates the bytes of memory that an ffmpeg needs to decode pictures of this many pixels. Measured: 12 MiB
// at 640x480, besides 44 MiB of shared libraries.
func Memory(pixels int) int64 { return 12<<20 + 16*int64(pixels) }

// needsMemory is the error detail of an ffmpeg that has reached its limit.
const needsMemory = "ffmpeg needs more memory than it may use for pictures of this size: raise limits.max_pixels, " +
	"or send a smaller picture"

// noMemory is ffmpeg's message for ENOMEM.
const noMemory = "Cannot allocate memory"
