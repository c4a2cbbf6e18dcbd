// Package buf names what stream/buf holds, for packages that still import it from
// here.
package buf

import "millrace/stream/buf"

// The names.
type (
	Buf   = buf.Buf
	Pool  = buf.Pool
	Stats = buf.Stats
)

// DefaultBudget is that of stream/buf.
const DefaultBudget = buf.DefaultBudget

// ErrBudget is that of stream/buf.
var ErrBudget = buf.ErrBudget

// NewPool is buf.NewPool.
func NewPool(budget int64) *Pool { return buf.NewPool(budget) }
