// Package video turns any file, device or address readable by ffmpeg into frames: raw pixels or whole JPEG pictures,
// in order, with presentation times, read one at a time into memory of the caller.
//
// The package owns the ffmpeg command line, the protocol allow-list, the format on the pipe, the classification of
// errors, and the removal of passwords from all reports. The package must not know streams, models, servers or
// policy: the server decides with ClassifyURL and CheckPublic whether an address may be opened, and Options.Allow
// enforces the decision.
//
// One Reader is one ffmpeg child. ffmpeg decodes, drops frames above the wanted rate, scales, and writes NUT,
// ffmpeg's own simple container, to a pipe: the header of every frame has its size and exact presentation time.
// ffmpeg's messages describe the source; for files ffprobe is asked first, because only ffprobe knows the length of
// the video without the sound. So a camera gets a single connection, and its first frame is returned at once.
//
// A Decoder decodes chunks, the output of an encoder, from the caller: each Write takes a chunk, and the decoded
// frame comes back, with the number of its chunk, before the next chunk is written.
//
// Nothing is buffered beyond the pipe. A slow reader blocks ffmpeg, so the reader of a camera must read continuously
// and drop frames itself.
package video
