package ingest

import (
	"time"

	"millrace/internal/heap"
	"millrace/stream"
	"millrace/stream/buf"
)

// VideoMemory is what the ffmpegs that decode for a client are charged to: a memory budget, the share of it that the client's
// messages have, too, and the share that the videos of its account have over all its connections.
type VideoMemory struct {
	Pool    *buf.Pool
	Share   *buf.Share      // nil = none
	Account *stream.Account // nil = none
}

// Charge takes n bytes for an ffmpeg, also off the limit of this process's heap, so that both together have no more than the
// budget. The error is buf.ErrBudget or buf.ErrShare.
func (m VideoMemory) Charge(n int64) error {
	err := m.Pool.ChargeTo(n, m.Share, m.Account.Memory())
	if err == nil {
		heap.Outside(n)
	}
	return err
}

// Refund returns the n bytes of a Charge, when the ffmpeg has ended.
func (m VideoMemory) Refund(n int64) {
	heap.Outside(-n)
	m.Pool.RefundFrom(n, m.Share, m.Account.Memory())
}

// ChargeDecoding returns what charges a client for the processor time of an ffmpeg that decodes for it (quotas.decode): Used of
// video.Options and video.DecoderOptions. nil is no client.
func ChargeDecoding(a *stream.Account) func(used time.Duration) {
	return func(used time.Duration) { a.Decoded(used, stream.Now()) }
}
