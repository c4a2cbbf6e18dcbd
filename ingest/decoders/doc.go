// Package decoders decodes inter-coded video between an adapter and a stream: it takes
// chunks of H.264, VP8, VP9 or AV1, and submits decoded frames to the stream, with the
// numbers, times and parameters of their chunks.
//
// Each video has one supervised ffmpeg. No chunk is left out before it is decoded,
// because later ones need it: when there are too many frames, the stream's policy drops
// decoded ones. When a chunk is lost, damaged or too late, the chunks up to the next
// key frame end as `undecoded` and the client is asked for a key frame. While the client
// is over its quota of decoding, chunks end as `quota`, and the chunks after them as after
// a lost one. The package must not know protocols.
package decoders
