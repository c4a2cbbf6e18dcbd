package tasks

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// poster counts the posts of each message, and answers each with an error.
type poster struct {
	mu    sync.Mutex
	posts map[string]int
	again bool
	err   error
}

func (p *poster) post(_ context.Context, id string, _ Task) (again bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.posts[id]++
	return p.again, p.err
}

// TestWebhookOnce: of two processes, one tells each webhook, once in all; tasks without a webhook tell nobody.
func TestWebhookOnce(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	p := &poster{posts: map[string]int{}}
	both := []*Store{r.Store, r.another(Options{})}
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	for _, s := range both {
		ended.Go(func() { s.PostWebhooks(ctx, p.post) })
	}
	defer ended.Wait()
	defer stop()
	for range 30 {
		task := r.submit(Task{Model: "m", Webhook: &Webhook{URL: "http://127.0.0.1:1/", State: Waiting}}, "x")
		if _, err := r.Cancel(t.Context(), task.ID); err != nil {
			t.Fatal(err)
		}
	}
	without := r.submit(Task{Model: "m"}, "x")
	if _, err := r.Cancel(t.Context(), without.ID); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return told(r.Store, Delivered) == 30 && told(both[1], Delivered) == 30 })
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.posts) != 30 {
		t.Errorf("%d messages, want 30", len(p.posts))
	}
	for id, n := range p.posts {
		if n != 1 {
			t.Errorf("%s was posted %d times", id, n)
		}
	}
}

// told returns the number of tasks whose webhook is in a state.
func told(s *Store, state WebhookState) (n int) {
	all, _ := s.List(Query{Limit: 1000})
	for _, t := range all {
		if t.Webhook != nil && t.Webhook.State == state {
			n++
		}
	}
	return n
}

// TestWebhookGivenUp: a refused message is not posted again, and a message that may succeed later waits for its next
// attempt, also in the next process. A task that is queued again tells its webhook of the next end.
func TestWebhookGivenUp(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	ended := func() Task {
		task := r.submit(Task{Model: "m", Webhook: &Webhook{URL: "http://127.0.0.1:1/", State: Waiting}}, "x")
		task, err := r.Cancel(t.Context(), task.ID)
		if err != nil {
			t.Fatal(err)
		}
		return task
	}
	notify := func(s *Store, p *poster, until func() bool) {
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { s.PostWebhooks(ctx, p.post); close(over) }()
		waitFor(t, until)
		stop()
		<-over
	}
	refused := ended()
	gone := &poster{posts: map[string]int{}, err: errors.New("410 Gone")}
	notify(r.Store, gone, func() bool { return told(r.Store, GivenUp) == 1 })
	if task, _ := r.Get(refused.ID); task.Webhook.Error != "410 Gone" || task.Webhook.Attempts != 1 {
		t.Errorf("refused: %+v", task.Webhook)
	}
	later := ended()
	down := &poster{posts: map[string]int{}, again: true, err: errors.New("503")}
	notify(r.Store, down, func() bool {
		task, _ := r.Get(later.ID)
		return task.Webhook.Error == "503"
	})
	if task, _ := r.Get(later.ID); task.Webhook.State != Waiting || !task.Webhook.Next.After(time.Now()) {
		t.Errorf("waiting: %+v", task.Webhook)
	}
	next := r.another(Options{})
	if _, _, wait := next.nextWebhook(time.Now()); wait <= 0 || wait > 10*time.Second {
		t.Errorf("the next process waits %v for the webhook", wait)
	}
	if task, err := r.Retry(t.Context(), refused.ID, nil); err != nil || task.Webhook.State != Waiting ||
		task.Webhook.Error != "" {
		t.Errorf("queued again: %+v, %v", task.Webhook, err)
	}
}

// TestWebhookOutlivesRetention: a task stays until its webhook has the message, for the time of the attempts.
func TestWebhookOutlivesRetention(t *testing.T) {
	now := readClock()
	r := open(t, t.TempDir(), Options{Retention: time.Second, clock: func() moment { return now }})
	at := func(w *Webhook) time.Duration {
		task := r.submit(Task{Model: "m", Webhook: w}, "x")
		task, err := r.Cancel(t.Context(), task.ID)
		if err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.index.tasks[task.ID].due.Sub(now.mono)
	}
	if d := at(&Webhook{URL: "http://127.0.0.1:1/", State: Waiting}); d != webhookDeadline {
		t.Errorf("with a waiting webhook: deleted after %v", d)
	}
	if d := at(&Webhook{URL: "http://127.0.0.1:1/", State: Delivered}); d != time.Second {
		t.Errorf("with a delivered webhook: deleted after %v", d)
	}
}
