// Package decoders stands between an adapter and a stream for inter-coded video:
// chunks of H.264, VP8, VP9 or AV1 go in, and what the stream gets are decoded
// frames with the numbers, times and parameters of their chunks.
//
// Each video has one supervised ffmpeg. No chunk is left out before it is
// decoded, for those after it need it: frames that are too many are dropped by
// the stream's policy, decoded. When a chunk is lost, damaged or too late for
// that, the chunks up to the next key frame end as `undecoded` and the client is
// asked for a key frame. The package must not know protocols.
package decoders
