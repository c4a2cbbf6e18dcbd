package tasks

import (
	"context"
	"io"

	"millrace/tasks/blob"
)

// Source gives tasks to a Consumer: a Store in this process, or a server on another host. All methods are safe for
// concurrent use.
type Source interface {
	// ClaimFor waits until ctx ends for a queued task of the ready models, and claims the task for a consumer, whose
	// name is for people. The context of the claim ends with work.
	ClaimFor(ctx, work context.Context, consumer string, m Models) (Claim, error)
	// ModelsChanged lets waiting calls of ClaimFor look at the ready models again.
	ModelsChanged()
}

// Models are the models that a consumer can run now.
type Models interface {
	Serves(model string) bool
	Ready() []string // the names for which Serves is true
}

// Claim is a task that a consumer runs. Finish, Fail or Release ends the claim. When the task is no longer the
// consumer's, the methods return ErrClaimLost.
type Claim interface {
	// Task returns the task as claimed.
	Task() Task
	// Context ends when the task is cancelled or taken by another consumer, and with the context work of ClaimFor.
	Context() context.Context
	// Input opens the input of the task.
	Input() (blob.Reader, error)
	// Create begins the result of this attempt.
	Create() (blob.Writer, error)
	// Log returns the log of this attempt, for what the model writes for people. The log keeps the last bytes. A log
	// that cannot be kept fails no task: Write returns no error. Log is safe for concurrent use.
	Log() io.Writer
	// Report shows the progress to clients. The record of the task has the progress of the newest renewal.
	Report(p Progress) error
	// Finish ends the task with the result that Create has made.
	Finish(result File) error
	// Fail ends the attempt. With again, the task is queued again after a wait, unless this was the last attempt.
	Fail(f Failure, again bool) error
	// Release gives the task back to the queue at once, as if this attempt had not begun.
	Release() error
}

var (
	_ Source = (*Store)(nil)
	_ Claim  = (*StoreClaim)(nil)
)
