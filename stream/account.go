package stream

import (
	"math"
	"sync/atomic"
	"time"

	"millrace/stream/buf"
)

// Quota is a resource with a limit for each client.
type Quota uint8

// The quotas: rates first, then resources held at the same time.
const (
	QuotaRequests     Quota = iota // requests and calls
	QuotaFrames                    // frames, including one-shot requests
	QuotaBytes                     // of frames
	QuotaDecode                    // seconds of decoding pictures and videos
	QuotaLoads                     // of models
	QuotaStreams                   // streams
	QuotaSequences                 // sequences of requests, also counted as streams
	QuotaSessions                  // WebSocket connections, and sessions with resumption
	QuotaDecoders                  // videos being decoded
	QuotaPulledVideos              // videos being pulled
	QuotaWatchers                  // watchers of server streams
	QuotaEndpoints                 // endpoints created by requests of the client
	QuotaRegions                   // shared memory regions registered by the client
	QuotaTasks                     // tasks that have not ended; counted by the task store, see CheckRoom
	QuotaTaskBytes                 // bytes of inputs and results of tasks, likewise
	quotas

	rates = QuotaStreams // the number of quotas of rates
)

// Quotas is the number of quotas.
const Quotas = int(quotas)

// QuotaNames are the names of the quotas, as in settings.
var QuotaNames = [Quotas]string{"requests", "frames", "bytes", "decode", "loads", "streams", "sequences", "sessions",
	"decoders", "pulls", "watchers", "endpoints", "regions", "tasks", "task_bytes"}

// String returns the name.
func (q Quota) String() string { return QuotaNames[q] }

// A Limits has the limit of an account for each quota: per second for a rate, at the same time for other quotas; 0 =
// unlimited.
type Limits [quotas]float64

// Account holds the usage and the limits of one client, a principal or an address. A nil account belongs to the
// server itself and has no limits. All methods may be called concurrently.
type Account struct {
	// User is the client's name in programs, traces and the log; "" = no name. User does not change.
	User string

	limits atomic.Pointer[allowance] // nil = none
	// a rate: the total, QuotaDecode in nanoseconds; other quotas: the present number
	used   [quotas]atomic.Int64
	ends   [rates]atomic.Int64 // Instant at which the usage so far would be used up at the rate
	denied [quotas]atomic.Uint64
	memory buf.ClientShare
}

// allowance is the limit and burst of each quota of an account.
type allowance struct {
	of     Limits
	burst  time.Duration
	frames bool // a frame quota is limited
}

// Name returns User, or "" for a nil account.
func (a *Account) Name() string {
	if a == nil {
		return ""
	}
	return a.User
}

// Memory returns the share of the memory budget of the client, over all connections: the client's videos, and the
// messages that a Go program sends for the client. Memory returns nil for a nil account.
func (a *Account) Memory() *buf.ClientShare {
	if a == nil {
		return nil
	}
	return &a.memory
}

// SetLimits sets the limits of the account. A client may use a rate's quota of the time burst at once.
func (a *Account) SetLimits(of Limits, burst time.Duration) {
	if of == (Limits{}) {
		a.limits.Store(nil)
		return
	}
	a.limits.Store(&allowance{of, burst, of[QuotaFrames]+of[QuotaBytes]+of[QuotaDecode] > 0})
}

// Take takes n of a rate. When the quota is exceeded, Take takes nothing and returns an error of the code
// flow_control with the time of a retry. now may be 0 if the caller has not read the clock; Take then reads the
// clock, only for an account with limits.
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

// take takes an amount that lasts for the given time at the rate, and returns how long to wait if the quota does not
// allow the amount now. An amount that lasts longer than burst needs the whole burst.
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

// TakeFrame takes the quota for a frame before decoding; now is as for Take.
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

// MayDecode returns an error like Take's while the client must pay off decoding time noted by Decoded.
func (a *Account) MayDecode(now Instant) error {
	if wait, rate := a.decodeWait(now); wait > 0 {
		return a.refuse(QuotaDecode, rate, wait)
	}
	return nil
}

// DecodeWait returns how long the client must wait to pay off the decoding time noted by Decoded; 0 = MayDecode
// returns nil. DecodeWait counts no refusal.
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

// Decoded notes the time spent on decoding a picture, or a part of a video, of the client.
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

// Hold takes one of a quota that limits a number, until Release. Errors are as for Take.
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

// Release gives back one taken by Hold.
func (a *Account) Release(q Quota) {
	if a != nil {
		a.used[q].Add(-1)
	}
}

// refuse counts a refusal and returns the error.
func (a *Account) refuse(q Quota, limit float64, wait time.Duration) error {
	a.denied[q].Add(1)
	if q >= rates {
		err := Errorf(FlowControl, "quotas."+q.String(), heldText(q), limit)
		err.After = FlowControl.RetryAfter() // the time of the next release is unknown
		return err
	}
	err := Errorf(FlowControl, "quotas."+q.String(), "the client is over its quota of %v a second: try again in %v",
		limit, wait.Round(time.Millisecond))
	err.After = wait
	return err
}

// heldText is the message of a refusal for a quota of things held at the same time.
func heldText(q Quota) string {
	switch q {
	case QuotaTasks:
		return "the client has %v tasks that have not ended, as many as the quota allows: wait for tasks, or cancel " +
			"some"
	case QuotaTaskBytes:
		return "inputs and results of the client's tasks have %v bytes or more, as many as the quota allows: " +
			"delete tasks that have ended"
	}
	return "%v are open for this client already, and that is its quota: close one, or try again later"
}

// CheckRoom returns an error, as Take does, when held leaves no room for more of a quota that the caller counts.
func (a *Account) CheckRoom(q Quota, held int64) error {
	if a == nil {
		return nil
	}
	if l := a.limits.Load(); l != nil && l.of[q] > 0 && float64(held) >= l.of[q] {
		return a.refuse(q, l.of[q], 0)
	}
	return nil
}

// Holds returns the present number and the largest allowed number of a quota; 0 = unlimited.
func (a *Account) Holds(q Quota) (now, most int) {
	if a == nil {
		return 0, 0
	}
	if l := a.limits.Load(); l != nil {
		most = int(min(l.of[q], math.MaxInt32))
	}
	return int(a.used[q].Load()), most
}

// Used returns the usage of a quota: the total of a rate, QuotaDecode in nanoseconds; the present number of other
// quotas.
func (a *Account) Used(q Quota) int64 { return a.used[q].Load() }

// Denied returns how often something was refused because of a quota.
func (a *Account) Denied(q Quota) uint64 { return a.denied[q].Load() }

// Idle reports whether the account can be forgotten without effect on the client's limits: nothing is held, and the
// usage of every rate ended at least burst ago.
func (a *Account) Idle(now Instant) bool {
	for q := range quotas {
		if q >= rates && a.used[q].Load() != 0 || q < rates && a.ends[q].Load() > int64(now) {
			return false
		}
	}
	return true
}
