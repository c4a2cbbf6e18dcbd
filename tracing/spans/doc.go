// Package spans decides which frames' traces are kept, and builds their spans after the frames have ended, from the
// ids and times in every request. The package fills the hooks of workers and stream; a frame without a kept trace
// costs one comparison.
//
// Package spans owns the rules (sampling at the head, and the tail rules slow, dropped, failed and gated), the names
// of spans and attributes, and the newest kept frames for the API. The package must not know the destination of
// spans: an Exporter takes the spans.
//
// The spans of a frame's trace:
//
//	PROTOCOL MODEL         the root: from the first byte to the written reply
//	├─ receive             reading the frame, where the adapter knows the begin
//	├─ wait                in the mailbox and the queue, until bound to a batch
//	├─ batch               in the batch, linked with the span of the batch
//	│  ├─ prepare          copying tensors, or
//	│  │  ├─ decode        decoding the picture
//	│  │  └─ resize        and resizing the picture
//	│  ├─ run              the worker's Run
//	│  └─ results          the stages after Run
//	└─ write               until the reply was written, including the wait for its turn
//
// A step that a frame did not reach has no span. The span of a batch is in a trace of its own, because a batch
// belongs to no single frame; the span is linked with the root spans of the batch's members.
package spans
