package ingest

import (
	"time"

	"millrace/stream"
	"millrace/stream/buf"
)

// VideoMemory is the accounts charged for a client's ffmpegs: a memory budget, the client's share of the budget (used
// for messages, too), and the account's share for videos over all connections.
type VideoMemory struct {
	Pool    *buf.Pool
	Share   *buf.ClientShare // nil = none
	Account *stream.Account  // nil = none
}

// Charge takes n bytes for an ffmpeg. Charge also lowers the limit of this process's heap, so that the heap and
// ffmpeg together stay within the budget. The error is buf.ErrBudget or buf.ErrShare.
func (m VideoMemory) Charge(n int64) error {
	return m.Pool.ChargeOutside(n, m.Share, m.Account.Memory())
}

// Refund returns the n bytes of a Charge, when the ffmpeg has ended.
func (m VideoMemory) Refund(n int64) {
	m.Pool.RefundOutside(n, m.Share, m.Account.Memory())
}

// ChargeDecoding returns a function that charges a client for the processor time of the client's ffmpeg
// (quotas.decode), for Used of video.Options and video.DecoderOptions. a may be nil: no client.
func ChargeDecoding(a *stream.Account) func(used time.Duration) {
	return func(used time.Duration) { a.Decoded(used, stream.Now()) }
}
