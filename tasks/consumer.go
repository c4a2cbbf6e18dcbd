package tasks

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"millrace/internal/ctxio"
	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// Handler runs one claimed task. The result is written with Claim.Create. An error fails the attempt: another attempt
// follows if Again is true for the error. When the context of the claim ends, Run must return soon.
type Handler interface {
	Run(c Claim) (File, error)
}

// Consumer claims tasks and runs them, as many at once as there are slots.
type Consumer struct {
	Source  Source
	Name    string // for people, such as the name of the host
	Slots   int    // at least 1
	Models  Models // of the handler
	Handler Handler
	Log     *slog.Logger
	OnEnd   func(End) // called at the end of each attempt, by several goroutines; nil = nothing is called
	Overlap bool      // a slot takes the next task while the record of the task before is being finished
}

// End is the end of an attempt.
type End struct {
	Task    Task
	Outcome string // finished, failed, released, or lost: the task was cancelled or queued again meanwhile
	Err     error  // of the model, or of the end
	Took    time.Duration
}

// claimRetryDelay is the wait after a claim that has failed, as without the broker.
const claimRetryDelay = time.Second

// Run claims and runs tasks until ctx ends. Tasks that run then are run to their end for the time of grace, and given
// back to the queue afterwards.
func (k *Consumer) Run(ctx context.Context, grace time.Duration) {
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { stop(errDrained) }) })()
	var slots sync.WaitGroup
	for range max(1, k.Slots) {
		slots.Go(func() {
			ends := make(chan func())
			slots.Go(func() {
				for end := range ends {
					end()
				}
			})
			defer close(ends)
			for ctx.Err() == nil {
				k.runOne(ctx, work, ends)
			}
		})
	}
	slots.Wait()
}

// errDrained is the cause of the end of a task whose consumer has no more time.
var errDrained = coded.Errorf(coded.Draining, "", "the consumer ends")

// runOne claims and runs one task. The task outlives waiting, the context of the claiming, until work ends. With
// Overlap, the receiver of ends finishes the task.
func (k *Consumer) runOne(waiting, work context.Context, ends chan<- func()) {
	c, err := k.Source.ClaimFor(waiting, work, k.Name, k.Models)
	if err != nil {
		if waiting.Err() == nil {
			k.Log.Warn("no task can be claimed: trying again", "error", err)
			ctxio.Sleep(waiting, claimRetryDelay)
		}
		return
	}
	end := End{Task: c.Task()}
	begun := time.Now()
	file, err := k.Handler.Run(c)
	if err == nil && k.Overlap {
		ends <- func() { k.endClaim(waiting, c, file, nil, &end, begun) } // waits for the end of the task before
		return
	}
	k.endClaim(waiting, c, file, err, &end, begun)
}

// endClaim ends the claim of a task that has run, with the result or the error, reports the end, and pauses after a
// failure of the storage.
func (k *Consumer) endClaim(waiting context.Context, c Claim, file File, err error, end *End, begun time.Time) {
	err = k.storeEnd(c, file, err, end)
	if err != nil {
		end.Outcome, end.Err = "lost", err
	}
	if err != nil && !errors.Is(err, ErrClaimLost) {
		k.Log.Warn("the end of a task cannot be stored: the task is queued again when its lease is over",
			"task", end.Task.ID, "error", err)
	}
	if end.Took = time.Since(begun); k.OnEnd != nil {
		k.OnEnd(*end)
	}
	if isStorage(end.Err) {
		ctxio.Sleep(waiting, claimRetryDelay)
	}
}

// storeEnd stores the end of a task that has run.
func (k *Consumer) storeEnd(c Claim, file File, err error, end *End) error {
	cause := context.Cause(c.Context())
	end.Outcome, end.Err = "finished", err
	if err == nil {
		if err = c.Finish(file); !errors.Is(err, errDrained) {
			return err
		}
		cause = errDrained
	}
	t := &end.Task
	switch {
	case errors.Is(cause, errDrained), coded.CodeOf(err) == coded.Draining: // the process ends
		end.Outcome = "released"
		return c.Release()
	case cause == nil && isStorage(err): // no fault of the task
		end.Outcome = "released"
		k.Log.Warn("a task is queued again: its input or result cannot be stored or read", "task", t.ID, "error", err)
		return c.Release()
	case cause != nil:
		return cause // cancelled, or taken by another consumer
	}
	end.Outcome = "failed"
	k.Log.Warn("a task has failed", "task", t.ID, "model", t.Model, "attempt", t.Attempt, "error", err)
	return c.Fail(Failure{Code: string(coded.CodeOf(err)), Message: err.Error()}, Retryable(err))
}

// isStorage reports whether an error is about the disk or the S3 server of inputs and results.
func isStorage(err error) bool { return errors.Is(err, blob.ErrFull) || errors.Is(err, blob.ErrAway) }

// ErrDamaged is wrapped by the error of an input with other bytes than the client has sent.
var ErrDamaged error = coded.Errorf(coded.Internal, "", "the stored input is damaged")

// Retryable reports whether another attempt may succeed after an error: errors about the request itself stay.
func Retryable(err error) bool {
	if errors.Is(err, ErrDamaged) {
		return false
	}
	switch coded.CodeOf(err) {
	case coded.InvalidArgument, coded.Unsupported, coded.TooLarge, coded.PermissionDenied, coded.Unauthenticated:
		return false
	}
	return true
}
