// Package video turns any file, device or address that ffmpeg can read into frames: raw pixels or whole JPEG
// pictures, in order, with their presentation times, read one at a time into memory of the caller.
//
// It owns the ffmpeg command line, the protocol allow-list, the coding on the pipe, the classification of what
// went wrong, and the removal of passwords from everything it reports. It must not know streams, models,
// servers or policy: whether an address may be opened at all is the server's decision, for which ClassifyURL and
// IsPrivateAddr give the facts; Options.Allow has the decision kept. It imports only internal/child.
//
// One Reader is one ffmpeg child. ffmpeg decodes, drops frames above the wanted rate, scales, and writes NUT, its
// own simple container, to a pipe: every frame carries its size and exact presentation time in its own header, so
// nothing has to be guessed from text or counted. Before it, ffprobe is asked what the source is; its JSON answer
// and numeric error codes make the errors precise.
//
// A Decoder is the other way round: it is given the chunks of a video as an encoder made them, one by one, and gives the
// decoded frames, each with the number of its chunk and before the next chunk is there.
//
// Nothing is buffered beyond the pipe. A reader that is slow holds ffmpeg back, so who reads a camera must read
// all the time and drop frames itself.
package video
