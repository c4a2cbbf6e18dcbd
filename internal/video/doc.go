// Package video turns any file, device or address that ffmpeg can read into frames: raw pixels or whole JPEG
// pictures, in order, with their presentation times, read one at a time into memory of the caller.
//
// It owns the ffmpeg command line, the protocol allow-list, the format on the pipe, the classification of
// errors, and the removal of passwords from everything it reports. It must not know streams, models,
// servers or policy: the server decides whether an address may be opened, with the help of
// ClassifyURL and CheckPublic, and Options.Allow enforces the decision.
//
// One Reader is one ffmpeg child. ffmpeg decodes, drops frames above the wanted rate, scales, and writes NUT, its
// own simple container, to a pipe: every frame has its size and exact presentation time in its own header.
// What the source is, ffmpeg's messages say; for files ffprobe is asked before, which also knows the length of the
// video without its sound. So a camera is connected to once, and its first frame is returned at once.
//
// A Decoder decodes chunks that the caller has, as an encoder made them: it takes them one by one, and returns the decoded
// frames, each with the number of its chunk, without waiting for the next chunk.
//
// Nothing is buffered beyond the pipe. A slow reader blocks ffmpeg, so the reader of a camera must read continuously
// and drop frames itself.
package video
