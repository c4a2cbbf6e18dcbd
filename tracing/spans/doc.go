// Package spans decides which frames' traces are kept, and builds their spans after the
// frames have ended, from the ids and times that requests carry anyway. It fills the
// hooks of workers and stream; for a frame that is not kept, that is one comparison.
//
// It owns the rules (sampling at the head, and the tail rules slow, dropped, failed and
// gated), the names of spans and attributes, and the newest kept frames for the API. It
// must not know where spans are sent: an Exporter takes them.
//
// The spans of a frame's trace:
//
//	PROTOCOL MODEL         the root: from the first byte to the written reply
//	├─ receive             reading the frame, where the adapter knows when that began
//	├─ wait                in the mailbox and the queue, until it was bound to a batch
//	├─ batch               in the batch, linked with the span of the batch
//	│  ├─ prepare          copying tensors, or
//	│  │  ├─ decode        decoding the picture
//	│  │  └─ resize        and resizing it
//	│  ├─ run              the worker's Run
//	│  └─ results          the stages after it
//	└─ write               until the reply was written, waiting for its turn included
//
// A step that a frame did not reach has no span. The span of a batch is in a trace of its
// own, because it belongs to no single frame; it is linked with the root spans of its
// members.
package spans
