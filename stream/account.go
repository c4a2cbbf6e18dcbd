package stream

import (
	"math"
	"sync/atomic"
	"time"

	"millrace/stream/buf"
)

// Quota is something that clients use up, of which each may use so much.
type Quota uint8

// The quotas: first those of rates, then those of how many there are at once.
const (
	QuotaRequests  Quota = iota // requests and calls
	QuotaFrames                 // frames, one-shot requests among them
	QuotaBytes                  // of frames
	QuotaDecode                 // seconds of decoding pictures and videos
	QuotaLoads                  // of models
	QuotaStreams                // streams
	QuotaSequences              // sequences of requests, which are streams, too
	QuotaSessions               // connections of WebSockets, and sessions that can be resumed
	QuotaDecoders               // videos that are decoded
	QuotaPulls                  // videos that are pulled
	QuotaWatchers               // watchers of server streams
	QuotaEndpoints              // endpoints that requests of the client have made
	QuotaRegions                // regions of shared memory that the client has registered
	quotas

	rates = QuotaStreams // the number of quotas of rates
)

// Quotas is the number of quotas.
const Quotas = int(quotas)

// QuotaNames are the names of the quotas, as in settings.
var QuotaNames = [Quotas]string{"requests", "frames", "bytes", "decode", "loads", "streams", "sequences", "sessions", "decoders", "pulls", "watchers", "endpoints", "regions"}

// String returns the name.
func (q Quota) String() string { return QuotaNames[q] }

// A Limits has how much of each quota an account may use: of rates, in a second, of others, at once; 0 = any number.
type Limits [quotas]float64

// Account is what one client, a principal or an address, uses and may use. A nil one is that of the server itself, which has
// no limits. All methods may be called concurrently.
type Account struct {
	// User is who the client is, as programs, traces and the log are told; "" = it has no name. It does not change.
	User string

	limits atomic.Pointer[allowance] // nil = none
	used   [quotas]atomic.Int64      // of rates in all, in nanoseconds for QuotaDecode; of others, now
	ends   [rates]atomic.Int64       // when what was used would be used up at the rate, in nanoseconds as an Instant has
	denied [quotas]atomic.Uint64
	memory buf.Share
}

// allowance is what an account may use.
type allowance struct {
	of     Limits
	burst  time.Duration
	frames bool // some of it is of frames
}

// Name returns User; that of nil is "".
func (a *Account) Name() string {
	if a == nil {
		return ""
	}
	return a.User
}

// Memory returns in what the memory counts that is the client's wherever it connects: of its videos, and of what a Go program
// sends for it. That of nil is nil.
func (a *Account) Memory() *buf.Share {
	if a == nil {
		return nil
	}
	return &a.memory
}

// SetLimits sets what the account may use. burst is the time whose use of a rate may come at once.
func (a *Account) SetLimits(of Limits, burst time.Duration) {
	if of == (Limits{}) {
		a.limits.Store(nil)
		return
	}
	a.limits.Store(&allowance{of, burst, of[QuotaFrames]+of[QuotaBytes]+of[QuotaDecode] > 0})
}

// Take takes n of a rate. An error, of the code flow_control, says when to try again; nothing is taken then. now is 0 where the clock
// was not read yet, which is needed for an account with limits only.
func (a *Account) Take(q Quota, n int, now Instant) error {
	if a == nil {
		return nil
	}
	if l := a.limits.Load(); l != nil && l.of[q] > 0 {
		if now == 0 {
			now = Now()
		}
		if wait := a.take(q, cost(int64(n), l.of[q]), l.burst, now); wait > 0 {
			return a.refuse(q, l.of[q], wait)
		}
	}
	a.used[q].Add(int64(n))
	return nil
}

// cost returns how long n lasts at a rate, in nanoseconds.
func cost(n int64, rate float64) int64 {
	return int64(min(float64(n)/rate*float64(time.Second), math.MaxInt64/4))
}

// take takes what lasts for a time, and returns how long to wait if that cannot be now. What lasts for longer than burst can be
// taken when all of burst is left.
func (a *Account) take(q Quota, lasts int64, burst time.Duration, now Instant) time.Duration {
	for {
		ends := a.ends[q].Load()
		from := max(ends, int64(now))
		if wait := from - int64(now) + min(lasts, int64(burst)) - int64(burst); wait > 0 {
			return time.Duration(wait)
		}
		if a.ends[q].CompareAndSwap(ends, from+lasts) {
			return 0
		}
	}
}

// TakeFrame takes what a frame uses, before it is decoded; now is as for Take.
func (a *Account) TakeFrame(f *Frame, now Instant) error {
	if a == nil {
		return nil
	}
	n := int64(f.size())
	if l := a.limits.Load(); l != nil && l.frames {
		if now == 0 {
			now = Now()
		}
		if f.Codec.Picture() && f.Codec != RGB24 && f.Codec != NV12 {
			if err := a.MayDecode(now); err != nil {
				return err
			}
		}
		if rate := l.of[QuotaBytes]; rate > 0 {
			if wait := a.take(QuotaBytes, cost(n, rate), l.burst, now); wait > 0 {
				return a.refuse(QuotaBytes, rate, wait)
			}
		}
		if rate := l.of[QuotaFrames]; rate > 0 {
			if wait := a.take(QuotaFrames, cost(1, rate), l.burst, now); wait > 0 {
				if bytes := l.of[QuotaBytes]; bytes > 0 { // given back
					a.ends[QuotaBytes].Add(-cost(n, bytes))
				}
				return a.refuse(QuotaFrames, rate, wait)
			}
		}
	}
	a.used[QuotaBytes].Add(n)
	a.used[QuotaFrames].Add(1)
	return nil
}

// MayDecode returns an error, as that of Take, while the client has to make up for what Decoded has noted.
func (a *Account) MayDecode(now Instant) error {
	if wait, rate := a.decodeWait(now); wait > 0 {
		return a.refuse(QuotaDecode, rate, wait)
	}
	return nil
}

// DecodeWait returns for how long the client has to make up for what Decoded has noted; 0 = MayDecode returns nil. It counts no refusal.
func (a *Account) DecodeWait(now Instant) time.Duration {
	wait, _ := a.decodeWait(now)
	return wait
}

func (a *Account) decodeWait(now Instant) (wait time.Duration, rate float64) {
	if a == nil {
		return 0, 0
	}
	l := a.limits.Load()
	if l == nil || l.of[QuotaDecode] <= 0 {
		return 0, 0
	}
	return max(time.Duration(a.ends[QuotaDecode].Load()-int64(now))-l.burst, 0), l.of[QuotaDecode]
}

// Decoded notes that decoding a picture of the client, or a part of a video, took so long.
func (a *Account) Decoded(took time.Duration, now Instant) {
	if a == nil || took <= 0 {
		return
	}
	a.used[QuotaDecode].Add(int64(took))
	l := a.limits.Load()
	if l == nil || l.of[QuotaDecode] <= 0 {
		return
	}
	lasts := int64(min(float64(took)/l.of[QuotaDecode], math.MaxInt64/4)) // the quota is in seconds a second
	for {
		ends := a.ends[QuotaDecode].Load()
		if a.ends[QuotaDecode].CompareAndSwap(ends, max(ends, int64(now))+lasts) {
			return
		}
	}
}

// Hold takes one of those that there are at once, until Release. The error is as that of Take.
func (a *Account) Hold(q Quota) error {
	if a == nil {
		return nil
	}
	n := a.used[q].Add(1)
	if l := a.limits.Load(); l != nil && l.of[q] > 0 && float64(n) > l.of[q] {
		a.used[q].Add(-1)
		return a.refuse(q, l.of[q], 0)
	}
	return nil
}

// Release gives back what Hold has taken.
func (a *Account) Release(q Quota) {
	if a != nil {
		a.used[q].Add(-1)
	}
}

// refuse counts a refusal, and returns its error.
func (a *Account) refuse(q Quota, limit float64, wait time.Duration) error {
	a.denied[q].Add(1)
	if q >= rates {
		err := Errorf(FlowControl, "quotas."+q.String(), "%v are open for this client already, and that is its quota: close one, or try again later", limit)
		err.After = FlowControl.RetryAfter() // nobody knows when one is closed
		return err
	}
	err := Errorf(FlowControl, "quotas."+q.String(), "the client is over its quota of %v a second: try again in %v", limit, wait.Round(time.Millisecond))
	err.After = wait
	return err
}

// Holds returns how many there are of a quota now, and how many there may be; 0 = any number.
func (a *Account) Holds(q Quota) (now, most int) {
	if a == nil {
		return 0, 0
	}
	if l := a.limits.Load(); l != nil {
		most = int(min(l.of[q], math.MaxInt32))
	}
	return int(a.used[q].Load()), most
}

// Used returns how much of a quota was used: of a rate, in all, in nanoseconds for QuotaDecode; of others, how many there are.
func (a *Account) Used(q Quota) int64 { return a.used[q].Load() }

// Denied returns how often something was refused because of a quota.
func (a *Account) Denied(q Quota) uint64 { return a.denied[q].Load() }

// Idle reports whether an account that is forgotten now, and made again for the next request of its client, has the same limits:
// nothing is held, and everything that was taken was used up burst ago.
func (a *Account) Idle(now Instant) bool {
	for q := range quotas {
		if q >= rates && a.used[q].Load() != 0 || q < rates && a.ends[q].Load() > int64(now) {
			return false
		}
	}
	return true
}
