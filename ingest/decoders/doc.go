// Package decoders decodes inter-coded video between an adapter and a stream. A decoder takes chunks of H.264, VP8,
// VP9 or AV1, and submits decoded frames to the stream with the numbers, times and parameters of the chunks.
//
// Each video has one supervised ffmpeg. No chunk is dropped before decoding, because later chunks need the chunk:
// when there are too many frames, the stream's policy drops decoded frames. When a chunk is lost, damaged or too
// late, the chunks up to the next key frame end as `undecoded`, and the decoder asks the client for a key frame.
// While a client is over its quota of decoding, chunks end as `quota`; the following chunks end as after a lost
// chunk. The package must not know protocols.
package decoders
