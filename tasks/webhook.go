package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"millrace/internal/ctxio"
	"millrace/stream/coded"
)

// Webhook is an address that gets a task by POST when the task has ended. A change replaces the Webhook of a record,
// because revisions share a Webhook.
type Webhook struct {
	URL      string       `json:"url"`
	State    WebhookState `json:"state"`
	Attempts int          `json:"attempts,omitempty"`
	Next     time.Time    `json:"next,omitzero"`   // of the next attempt
	Error    string       `json:"error,omitempty"` // of the newest attempt
}

// WebhookState is the state of a webhook.
type WebhookState string

// The states of a webhook.
const (
	Waiting   WebhookState = "waiting"   // for the end of the task, or for the next attempt
	Delivered WebhookState = "delivered" // the receiver has answered with a status 2xx
	GivenUp   WebhookState = "given_up"  // the receiver has refused the message, or webhookDeadline was over
)

const (
	webhookDeadline = 24 * time.Hour               // from the end of the task to the last attempt
	maxWebhookPosts = 16                           // posts at once
	maxPostWait     = maxRetryDelay + webhookLease // a longer wait is a clock that was set back: the post is due
	webhookLease    = time.Minute                  // an attempt whose process ended is made again after this time
)

// Poster posts a message about an ended task. With an error, again says that a later attempt may succeed.
type Poster func(ctx context.Context, id string, t Task) (again bool, err error)

// PostWebhooks posts ended tasks to their webhooks until ctx ends. Each attempt is stored before the post, so that of
// several processes one posts, and a message is posted again after a crash: at least once in all.
func (s *Store) PostWebhooks(ctx context.Context, post Poster) {
	places := make(chan struct{}, maxWebhookPosts)
	var posts sync.WaitGroup
	defer posts.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t, revision, wait := s.nextWebhook(s.now().wall)
		if wait > 0 {
			timer.Reset(wait)
			select {
			case <-ctx.Done():
				return
			case <-s.index.webhookSignal:
			case <-timer.C:
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case places <- struct{}{}:
		}
		posts.Go(func() {
			defer func() { <-places }()
			s.attemptWebhook(ctx, t, revision, post)
		})
	}
}

// nextWebhook takes the task whose webhook is due, or returns how long to wait. The task returns to the heap with its
// next revision.
func (s *Store) nextWebhook(now time.Time) (t Task, revision uint64, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &s.index
	if x.webhooks.Len() == 0 {
		return t, 0, time.Hour
	}
	e := x.webhooks.entries[0]
	if wait = e.nextPost().Sub(now); wait > 0 && wait <= maxPostWait {
		return t, 0, wait
	}
	x.removeWebhook(e)
	return e.Task, e.revision, 0
}

// attemptWebhook makes one attempt for one revision of an ended task.
func (s *Store) attemptWebhook(ctx context.Context, t Task, revision uint64, post Poster) {
	w := *t.Webhook
	w.Attempts++
	w.Next = s.now().wall.Add(webhookLease)
	t.Webhook = &w
	revision, err := s.write(ctx, t, nil, revision)
	if errors.Is(err, errStale) { // another process tells the webhook, or the task was changed
		_, _, err = s.refresh(ctx, t.ID)
	} else if err == nil {
		s.postWebhook(ctx, t, revision, post)
		return
	}
	if err != nil && coded.CodeOf(err) != coded.NotFound {
		s.opts.Log.Warn("a message to a webhook cannot be prepared: trying again", "task", t.ID, "error", err)
		ctxio.Sleep(ctx, claimRetryDelay)
	}
	s.requeueWebhook(t.ID)
}

// postWebhook makes the attempt that the revision of an ended task announces, and stores the result.
func (s *Store) postWebhook(ctx context.Context, t Task, revision uint64, post Poster) {
	again, err := post(ctx, fmt.Sprintf("%s-%d", t.ID, t.Ended.UnixMilli()), t)
	after := *t.Webhook
	switch now := s.now().wall; {
	case err == nil:
		after.State, after.Error, after.Next = Delivered, "", time.Time{}
	case ctx.Err() != nil: // the process ends: the next start posts again
		after.Attempts, after.Next = after.Attempts-1, time.Time{}
	case !again || now.Sub(t.Ended) > webhookDeadline:
		after.State, after.Error, after.Next = GivenUp, err.Error(), time.Time{}
	default:
		after.Error, after.Next = err.Error(), now.Add(retryDelay(after.Attempts+1))
	}
	t.Webhook = &after
	if _, err := s.write(context.WithoutCancel(ctx), t, nil, revision); err != nil && !errors.Is(err, errStale) {
		s.opts.Log.Warn("the state of a webhook cannot be stored: posting again", "task", t.ID, "error", err)
	}
}

// requeueWebhook makes the webhook of a task due again that nextWebhook has taken and whose revision is the same.
func (s *Store) requeueWebhook(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.index.tasks[id]; e != nil {
		s.index.pushWebhook(e)
	}
}

// WebhookBody returns the body that webhooks get: the task as clients see it, after the end, without what identifies
// the client.
func (t Task) WebhookBody() []byte {
	t.Webhook, t.Owner, t.Key, t.Trace = nil, "", "", ""
	b, _ := json.Marshal(t) // of texts, numbers and times
	return b
}
