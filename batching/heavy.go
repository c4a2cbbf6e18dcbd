package batching

import (
	"errors"
	"math"
	"slices"
	"time"

	"millrace/stream"
	"millrace/stream/buf"
)

// Pictures with a long decoding are not decoded by the worker of a batch, because the frames of other clients would
// wait for the decoding. The tokens of their streams wait in a separate queue, and the frames wait in their
// mailboxes, under the policies of their streams. Goroutines beside the workers take the frames (TakeHeavy), decode
// each frame into a row of the model's input, and give the requests back (AddDecoded); the requests then wait for a
// batch in place of tokens.
//
// The queue divides the time of decoding fairly between accounts: of the accounts with waiting frames, the account
// with the least decoding time is next. An account without frames for a while begins with the decoding time of the
// account served last.
//
// Goyal, Vin and Cheng, Start-time fair queuing, 1997.

const (
	// heavyCost is the estimated time of decoding from which a frame is decoded beside the workers.
	heavyCost = 25 * time.Millisecond
	// shareCost is how much is decoded in one batch for one account, while others send frames, too.
	shareCost = heavyCost
	// recently is how long an account counts as one that sends frames.
	recently = time.Second
)

// heavyQueue is the queue of heavy frames.
type heavyQueue struct {
	isSeparate func(*stream.Request) bool // reports whether a frame is not to be bound to batch; nil = none is heavy
	batch      *Batch
	next       heavyToken // for which isSeparate has last returned true
	waiting    []heavyToken
	// virtual times at which the next frames of accounts start, where they are later than now
	used    map[*stream.Account]time.Duration
	now     time.Duration // the virtual time at which the last frame that was taken has started
	decoded int           // requests with a Row that wait for a batch
	taken   int           // requests that are being decoded
	last    [2]struct {   // the two accounts of which a frame was bound last
		account *stream.Account
		at      stream.Instant // 0 = there was none
	}
}

// heavyToken is a token whose frame is to be decoded beside the workers.
type heavyToken struct {
	stream   *stream.Stream
	inbox    *Inbox
	priority stream.Priority
	account  *stream.Account
}

// HeavyRequest is a request whose pictures are to be decoded beside the workers.
type HeavyRequest struct {
	*stream.Request
	from heavyToken
	cost time.Duration // that its account was charged for
}

// SeparateHeavy makes the intake keep heavy frames for TakeHeavy. It is called before the first Push.
func (in *Intake) SeparateHeavy() { in.heavy.isSeparate = in.isSeparate }

// isSeparate reports whether a frame is to be decoded beside the workers: because it is heavy, or because
// its account has had its share of the batch.
func (in *Intake) isSeparate(r *stream.Request) bool {
	q := &in.heavy
	if r.Cost < heavyCost && (r.Cost == 0 || !q.contended(r.Account, in.now) || q.batch.costOf(r.Account)+
		r.Cost <= shareCost) {
		return false
	}
	q.next.account = r.Account
	return true
}

// costOf returns about how long decoding takes for the requests of an account.
func (b *Batch) costOf(a *stream.Account) (d time.Duration) {
	for _, r := range b.Requests {
		if r.Account == a && r.Row == nil {
			d += r.Cost
		}
	}
	return d
}

// note says that a frame of an account was bound.
func (q *heavyQueue) note(a *stream.Account, now stream.Instant) {
	if q.last[0].account != a || q.last[0].at == 0 {
		q.last[1] = q.last[0]
		q.last[0].account = a
	}
	q.last[0].at = now
}

// contended reports whether a frame of the account takes time from another account that sends frames, too.
// Those of the server itself, which have no account, are not held back.
func (q *heavyQueue) contended(a *stream.Account, now stream.Instant) bool {
	if a == nil {
		return false
	}
	for i := range q.last {
		if l := &q.last[i]; l.account != a && l.at != 0 && now.Sub(l.at) < recently {
			return true
		}
	}
	return false
}

// add queues the token for which isSeparate has returned true.
func (q *heavyQueue) add(s *stream.Stream, x *Inbox, p stream.Priority) {
	q.next.stream, q.next.inbox, q.next.priority = s, x, p
	q.waiting = append(q.waiting, q.next)
	q.next = heavyToken{}
}

// start returns the virtual time at which the next frame of an account starts.
func (q *heavyQueue) start(a *stream.Account) time.Duration { return max(q.used[a], q.now) }

// HeavyWaiting returns how many heavy frames wait, beyond those that are being decoded; 0 when none may be taken now.
func (in *Intake) HeavyWaiting() int {
	if in.heavy.isFull(in.model) {
		return 0
	}
	return len(in.heavy.waiting)
}

// isFull reports whether as many decoded requests wait for a worker as may.
func (q *heavyQueue) isFull(m *stream.Model) bool { return q.decoded >= max(m.MaxBatch, 2) }

// HeavyTaken returns how many are being decoded.
func (in *Intake) HeavyTaken() int { return in.heavy.taken }

// TakeHeavy binds the next heavy frame. It is not ok when there is none, or when as many that were
// decoded wait for a worker as a batch has rows: the memory that they take is bounded, and frames
// that wait in their mailboxes can be replaced by newer ones.
func (in *Intake) TakeHeavy(now stream.Instant) (h HeavyRequest, ok bool) {
	q := &in.heavy
	for len(q.waiting) > 0 && !q.isFull(in.model) {
		i := 0
		for k := range q.waiting {
			if q.start(q.waiting[k].account) < q.start(q.waiting[i].account) {
				i = k
			}
		}
		from := q.waiting[i]
		q.waiting = slices.Delete(q.waiting, i, i+1)
		r, _ := from.stream.Take(now, math.MaxInt, nil, 0)
		if r == nil {
			continue
		}
		h = HeavyRequest{r, from, max(r.Cost, time.Microsecond)}
		h.from.account = r.Account // of a newer frame than the one that was queued
		q.now = q.start(r.Account)
		if q.used == nil {
			q.used = map[*stream.Account]time.Duration{}
		}
		q.used[r.Account] = q.now + h.cost
		for a, t := range q.used {
			if t <= q.now {
				delete(q.used, a)
			}
		}
		q.note(r.Account, now)
		q.taken++
		return h, true
	}
	return HeavyRequest{}, false
}

// AddDecoded says that the decoding of a request has ended, after took, and queues it if it has a
// Row. The others have their endings.
func (in *Intake) AddDecoded(h HeavyRequest, took time.Duration) {
	q := &in.heavy
	q.taken--
	if t := q.start(h.from.account) + took - h.cost; t > q.now {
		q.used[h.from.account] = t
	} else {
		delete(q.used, h.from.account)
	}
	if h.Row == nil {
		return
	}
	x := h.from.inbox
	if x.closed || in.drained {
		x = in.common
	}
	in.queueDecoded(x, h.Request, h.from.priority)
	in.arrivals.Add(1)
}

// queueDecoded queues a request that was decoded.
func (in *Intake) queueDecoded(x *Inbox, r *stream.Request, p stream.Priority) {
	in.heavy.decoded++
	in.tokens++
	x.pendingOf(r.Class).tokens[p].push(token{request: r, number: in.tokens, received: r.Timing.Received,
		deadline: r.Deadline})
}

// keepsDecoded reports whether a request that was decoded still waits for its run; otherwise it is
// released.
func (in *Intake) keepsDecoded(r *stream.Request) bool {
	if r.Outcome() == stream.Pending {
		return true
	}
	in.heavy.decoded--
	r.Unbind()
	return false
}

// takeDecoded returns a request that was decoded for a batch that is predicted to end in about
// predict, or nil if it has ended.
func (in *Intake) takeDecoded(r *stream.Request, predict time.Duration) *stream.Request {
	if err := r.Stream.LostState(); err != nil {
		r.Fail(err)
	} else if r.Deadline != 0 && in.now.Add(predict) > r.Deadline {
		r.Drop(stream.Stale)
	}
	if !in.keepsDecoded(r) {
		return nil
	}
	in.heavy.decoded--
	return r
}

// removeDecoded takes the requests that were decoded out of the pending batches, by priority.
func (in *Intake) removeDecoded(inboxes ...*Inbox) (out [stream.Priorities][]*stream.Request) {
	for _, x := range inboxes {
		for _, p := range x.pending {
			for i := range p.tokens {
				p.tokens[i].filter(func(t *token) (keep, more bool) {
					if t.request == nil {
						return true, true
					}
					out[i] = append(out[i], t.request)
					in.heavy.decoded--
					return false, true
				})
			}
		}
	}
	return out
}

// RemoveDecoded returns the requests that were decoded and wait for a batch, after Drain. The caller
// ends and releases them.
func (in *Intake) RemoveDecoded() (out []*stream.Request) {
	for _, rs := range in.removeDecoded(in.common) {
		out = append(out, rs...)
	}
	return out
}

// DecodePictures decodes the pictures of r, which is in no batch, into dst, a row of the model's
// input. If they cannot be decoded, r ends as it does when its batch is prepared, and it is
// released. The row is then r's.
func DecodePictures(r *stream.Request, row *buf.Buf, decode Decode) {
	var err error
	if r.Assembled != nil {
		err = decodeFrames(r, row.Bytes(), decode)
	} else {
		err = decode(r, row.Bytes())
	}
	switch {
	case errors.Is(err, buf.ErrBudget):
		r.Drop(stream.Memory)
	case err != nil:
		r.Fail(err)
	default:
		r.Row = row
		return
	}
	row.Release()
	r.Unbind()
}
