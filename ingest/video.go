package ingest

import (
	"millrace/internal/heap"
	"millrace/stream/buf"
)

// ChargeVideo takes n bytes off a memory budget for an ffmpeg that decodes for a client, and off the limit of this
// process's heap, so that both together have no more. It returns buf.ErrBudget when the budget does not allow it.
func ChargeVideo(memory *buf.Pool, n int64) error {
	err := memory.Charge(n)
	if err == nil {
		heap.Outside(n)
	}
	return err
}

// RefundVideo returns the n bytes of a ChargeVideo, when the ffmpeg has ended.
func RefundVideo(memory *buf.Pool, n int64) {
	heap.Outside(-n)
	memory.Refund(n)
}
