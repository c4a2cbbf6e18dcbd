package batching

import "time"

// Deadline names the batcher that waits as long as deadlines allow.
const Deadline = "deadline"

// DeadlineSettings are the settings of the batcher deadline.
type DeadlineSettings struct {
	Slack time.Duration `yaml:"slack" default:"5ms" advanced:"yes" help:"batcher deadline: time kept free before the nearest deadline, for a run that takes longer than predicted"`
}

func init() {
	Register(Deadline, "waits for a full batch as long as the nearest deadline allows",
		func(maxSize int, s DeadlineSettings) Batcher {
			return deadline{adaptive{maxSize}, s.Slack}
		})
}

// deadline waits for a full batch until the last moment for a full batch to end slack before the nearest deadline of
// a waiting frame. deadline reserves the time of a full batch, however many rows wait now, since later frames may
// fill the batch.
//
// deadline does not wait when more batches could be formed than workers are idle: a further batch would have to wait
// for a whole run. Without a deadline, and before any time has been measured, deadline decides like adaptive.
type deadline struct {
	adaptive
	slack time.Duration
}

func (deadline) Needs() Needs { return Needs{Pending: true, Deadline: true, Arrivals: true} }

func (d deadline) Decide(v View) (int, time.Duration) {
	run := v.Predict(d.max)
	switch {
	case v.Rows >= d.max:
		return d.max, 0
	case v.Deadline == NoDeadline || run == 0:
		return d.adaptive.Decide(v)
	}
	if wait := v.Deadline - run - d.slack; wait > 0 && v.Pending <= v.Idle {
		return 0, wait
	}
	return v.Rows, 0
}

// Cause implements Explainer.
func (d deadline) Cause(v View) Cause {
	if v.Deadline == NoDeadline || v.Pending > v.Idle || v.Predict(d.max) == 0 {
		return IdleWorker
	}
	return NearDeadline
}
