package tasks

import (
	"context"
	"time"

	"millrace/ingest/access"
	"millrace/internal/ctxio"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/tasks"
)

const (
	ownersInterval = time.Second // between two checks of the owners of tasks
	ownersRescans  = 10          // checks in which a changed owner's tasks are read: a submission may be in progress
	sharedGrace    = time.Minute // for the keys to reach each of several servers
)

// owner is what endRefused knows of the owner of tasks.
type owner struct {
	principal *access.Principal // nil = the credentials have ended
	err       error
	checks    int       // with this state
	since     time.Time // of this state
}

// refuses returns why an owner may not have a task of a model.
func (o *owner) refuses(model string) error {
	err := o.err
	if err == nil {
		err = o.principal.Authorize(access.Need{Role: role.Infer, Model: model})
	}
	if err == nil {
		return nil
	}
	return stream.Errorf(stream.CodeOf(err), "", "the owner of the task may not run the task any more: %w", err)
}

// endRefused cancels the tasks of owners whose credentials have ended, or whose roles or models no longer allow the
// task, until ctx ends.
func (a *Adapter) endRefused(ctx context.Context, known map[string]*owner) {
	for ctxio.Sleep(ctx, ownersInterval) {
		known = a.checkOwners(ctx, known, a.grace(), time.Now())
	}
}

// grace returns how long the tasks of an owner without the right to run them stay.
func (a *Adapter) grace() time.Duration {
	if a.opts.Data.Shared() {
		return sharedGrace
	}
	return 0
}

// checkOwners makes one check, and returns the present owners.
func (a *Adapter) checkOwners(ctx context.Context, known map[string]*owner, grace time.Duration,
	now time.Time) map[string]*owner {
	present, suspects := map[string]*owner{}, map[string]*owner{}
	for _, name := range a.opts.Data.Owners() {
		p, err := a.gate.Holder(name)
		if stream.CodeOf(err) == stream.Unavailable { // no reason to cancel accepted tasks
			continue
		}
		o := known[name]
		if o == nil || !o.principal.Equal(p) {
			o = &owner{principal: p, err: err, since: now}
		}
		o.checks++
		present[name] = o
		full := err == nil && !p.Limited() && p.Allows(role.Infer) == nil
		if waited := now.Sub(o.since); !full && waited >= grace && (err != nil || o.checks <= ownersRescans ||
			waited < grace+ownersRescans*ownersInterval) {
			suspects[name] = o
		}
	}
	if len(suspects) == 0 {
		return present
	}
	n, err := a.opts.Data.CancelRefused(ctx, func(t *tasks.Task) error {
		if o := suspects[t.Owner]; o != nil {
			return o.refuses(t.Model)
		}
		return nil
	})
	if n > 0 {
		a.opts.Log.Info("tasks of clients without the right to run the tasks were cancelled", "tasks", n)
	}
	if err != nil && ctx.Err() == nil {
		a.opts.Log.Warn("a task of a client without the right to run the task cannot be cancelled: trying again",
			"error", err)
	}
	return present
}

// ownerRefused returns why a task may not be queued again.
func (a *Adapter) ownerRefused(t *tasks.Task) error {
	if !a.gate.Required() || t.Owner == "" {
		return nil
	}
	p, err := a.gate.Holder(t.Owner)
	if err := (&owner{principal: p, err: err}).refuses(t.Model); err != nil {
		return stream.Errorf(stream.Conflict, "", "%w", err)
	}
	return nil
}
