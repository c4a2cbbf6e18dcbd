package tasks

import (
	"sync"
	"testing"
	"time"

	"millrace/stream/coded"
)

// clock is a clock whose time of day jumps when the test says so.
type clock struct {
	mu  sync.Mutex
	now moment
}

func (c *clock) read() moment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// pass lets time pass, and moves the time of day by a jump beside.
func (c *clock) pass(d, jump time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = moment{c.now.wall.Add(d + jump), c.now.mono.Add(d)}
}

// jumped is a store with a clock, and a task in each state in which something is due later.
type jumped struct {
	*rig
	clock *clock

	running, later, expires, failed, done Task
	claim                                 *StoreClaim // of running
}

func newJumped(t *testing.T) *jumped {
	t.Helper()
	j := &jumped{clock: &clock{now: readClock()}}
	j.rig = open(t, t.TempDir(), Options{Retention: 24 * time.Hour, Lease: time.Minute, clock: j.clock.read})
	now := j.clock.read().wall
	take := func(model string, attempts int) (Task, *StoreClaim) {
		t.Helper()
		task := j.submit(Task{Model: model, Attempts: attempts}, "x")
		c, err := j.next(t.Context(), t.Context(), claimant{"c", "key"}, func(m string) bool { return m == model })
		if err != nil {
			t.Fatal(err)
		}
		return task, c
	}
	j.later = j.submit(Task{Model: "later", NotBefore: now.Add(time.Hour)}, "x")
	j.expires = j.submit(Task{Model: "nobody", Expires: now.Add(time.Hour)}, "x")
	var c *StoreClaim
	j.failed, c = take("failed", 3)
	if err := c.Fail(Failure{"internal", "no luck"}, true); err != nil {
		t.Fatal(err)
	}
	j.done, c = take("done", 3)
	if err := finish(t, c); err != nil {
		t.Fatal(err)
	}
	j.running, j.claim = take("running", 3)
	return j
}

// due does what is due now, and checks the states of the tasks; "" = deleted.
func (j *jumped) due(running, later, expires, failed, done State) {
	j.t.Helper()
	j.handleDue(j.t.Context(), j.clock.read())
	for i, task := range []Task{j.running, j.later, j.expires, j.failed, j.done} {
		want := []State{running, later, expires, failed, done}[i]
		name := []string{"running", "later", "expires", "failed", "done"}[i]
		if now, err := j.Get(task.ID); now.State != want || (err != nil) != (want == "") {
			j.t.Errorf("the task %s is %q, want %q: %v", name, now.State, want, err)
		}
	}
}

// ready checks which of the tasks a consumer would get.
func (j *jumped) ready(want ...string) {
	j.t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, model := range want {
		if j.index.ready[model] == nil {
			j.t.Errorf("the task %s does not wait for a consumer", model)
		}
	}
	if len(j.index.ready) != len(want) {
		j.t.Errorf("tasks of %d models wait for a consumer, want %q", len(j.index.ready), want)
	}
}

// TestClockForward: a jump forward by hours ends no lease, no wait after a failure and no retention. What has a time of
// day is due.
func TestClockForward(t *testing.T) {
	j := newJumped(t)
	j.ready("nobody")
	j.clock.pass(0, 5*time.Hour)
	j.due(Running, Queued, Expired, Queued, Finished)
	j.ready("later")
	if wait := j.handleDue(t.Context(), j.clock.read()); wait > time.Minute {
		t.Errorf("the next look is after %v, the lease a minute", wait)
	}
	j.clock.pass(50*time.Second, 0)
	j.due(Running, Queued, Expired, Queued, Finished)
	j.ready("later", "failed")
	if err := j.claim.Renew(); err != nil {
		t.Fatal(err)
	}
	j.clock.pass(50*time.Second, 24*time.Hour)
	j.due(Running, Queued, Expired, Queued, Finished)
	if err := finish(t, j.claim); err != nil { // the only run
		t.Fatal(err)
	}
	j.clock.pass(25*time.Hour, 0)
	j.due("", Queued, "", Queued, "")
}

// TestClockBack: after a jump back by hours, leases, waits after failures and retentions end as if the clock had not
// jumped, new tasks run, and what has a time of day waits for the time. A late consumer is refused.
func TestClockBack(t *testing.T) {
	j := newJumped(t)
	j.clock.pass(0, -5*time.Hour)
	j.due(Running, Queued, Queued, Queued, Finished)
	j.ready("nobody")
	j.submit(Task{Model: "new"}, "x")
	j.ready("nobody", "new")
	j.clock.pass(61*time.Second, 0)
	j.due(Queued, Queued, Queued, Queued, Finished)
	j.ready("nobody", "new", "failed", "running")
	if err := finish(t, j.claim); coded.CodeOf(err) != coded.Canceled {
		t.Errorf("the late consumer: %v", err)
	}
	if now, _ := j.Get(j.running.ID); now.Attempt != 1 || now.State != Queued {
		t.Errorf("after the late consumer: %+v", now)
	}
	j.clock.pass(24*time.Hour, 0)
	j.due(Queued, Queued, Expired, Queued, "")
	j.ready("new", "failed", "running", "later")
}

// TestClockBackBeforeStart: a process that starts after a jump back waits at most for the longest wait after a failure
// and for the retention, and looks at times of day again and again.
func TestClockBackBeforeStart(t *testing.T) {
	j := newJumped(t)
	j.clock.pass(0, -5*time.Hour)
	j.Store = j.another(Options{Retention: 24 * time.Hour, Lease: time.Minute, clock: j.clock.read})
	j.due(Running, Queued, Queued, Queued, Finished)
	if wait := j.handleDue(t.Context(), j.clock.read()); wait > jumpPause {
		t.Errorf("the next look is after %v", wait)
	}
	j.clock.pass(maxRetryDelay, 0)
	j.due(Queued, Queued, Queued, Queued, Finished)
	j.ready("nobody", "failed", "running")
	j.clock.pass(24*time.Hour, 0)
	j.due(Queued, Queued, Expired, Queued, "")
}

// TestClockBackWebhooks: after a jump back, ended tasks are posted to their webhooks at once.
func TestClockBackWebhooks(t *testing.T) {
	c := &clock{now: readClock()}
	r := open(t, t.TempDir(), Options{clock: c.read})
	task := r.submit(Task{Model: "m", Webhook: &Webhook{URL: "http://127.0.0.1:1/", State: Waiting}}, "x")
	if _, err := r.Cancel(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	c.pass(0, -5*time.Hour)
	if got, _, wait := r.nextWebhook(c.read().wall); wait > 0 || got.ID != task.ID {
		t.Errorf("the webhook waits %v", wait)
	}
}
