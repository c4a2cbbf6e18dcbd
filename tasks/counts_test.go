package tasks

import (
	"maps"
	"math/rand/v2"
	"testing"

	"millrace/internal/testseed"
	"millrace/stream/coded"
)

// TestStats: after each of random changes, the counts of the store equal the answers of the store to the clients, for
// the process that makes the changes, and after another start. The counts of a process that follows add up.
func TestStats(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	follower := r.another(Options{})
	draw := rand.New(rand.NewPCG(testseed.First(), 1))
	told := Stats{Ended: map[State]uint64{}}
	states := map[string]State{}
	pick := func(want func(State) bool) string {
		for id, s := range states {
			if want(s) {
				return id
			}
		}
		return ""
	}
	queued := func(s State) bool { return s == Queued }
	for range 300 {
		switch draw.IntN(6) {
		case 0, 1:
			task := r.submit(Task{Model: "m", Owner: "o"}, "four")
			states[task.ID] = Queued
			told.Submitted++
		case 2:
			if id := pick(queued); id != "" {
				if _, err := r.Cancel(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				states[id] = Cancelled
				told.Ended[Cancelled]++
			}
		case 3:
			if pick(queued) != "" {
				c := claim(t, r.Store)
				told.Attempts++
				if draw.IntN(2) == 0 {
					states[c.Task().ID] = Finished
					told.Ended[Finished]++
					if err := c.Finish(write(t, c)); err != nil {
						t.Fatal(err)
					}
					break
				}
				states[c.Task().ID] = Failed
				told.Ended[Failed]++
				if err := c.Fail(Failure{Code: string(coded.Internal)}, false); err != nil {
					t.Fatal(err)
				}
			}
		case 4:
			if id := pick(func(s State) bool { return s == Cancelled || s == Failed }); id != "" {
				if _, err := r.Retry(t.Context(), id, nil); err != nil {
					t.Fatal(err)
				}
				states[id] = Queued
				told.Retried++
			}
		case 5:
			if id := pick(func(s State) bool { return s != Running }); id != "" {
				if err := r.Delete(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				if states[id] == Queued {
					told.Ended[Deleted]++
				}
				delete(states, id)
			}
		}
		checkStats(t, r.Stats(), told, states)
	}
	waitFor(t, func() bool { return maps.Equal(follower.Stats().Stored, r.Stats().Stored) })
	followed := follower.Stats()
	told = Stats{Ended: followed.Ended, Submitted: followed.Submitted, Retried: followed.Retried,
		Attempts: followed.Attempts} // the follower does not see each change
	checkStats(t, followed, told, states)

	again := Stats{Ended: map[State]uint64{}}
	for _, s := range states {
		if s == Queued {
			again.Found++
		}
	}
	checkStats(t, r.another(Options{}).Stats(), again, states)
}

func checkStats(t *testing.T, got, want Stats, states map[string]State) {
	t.Helper()
	stored := map[State]int{}
	for _, s := range states {
		stored[s]++
	}
	ended := uint64(0)
	for _, s := range append(States, Deleted) {
		if got.Ended[s] != want.Ended[s] || got.Stored[s] != stored[s] {
			t.Fatalf("%s: %d ends, %d stored; want %d, %d", s, got.Ended[s], got.Stored[s], want.Ended[s], stored[s])
		}
		ended += got.Ended[s]
	}
	if got.Submitted != want.Submitted || got.Found != want.Found || got.Retried != want.Retried ||
		got.Attempts != want.Attempts {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	if sum := ended + uint64(got.Stored[Queued]+got.Stored[Running]); got.Submitted+got.Found+got.Retried != sum {
		t.Fatalf("%+v does not add up", got)
	}
}

// TestAdmit: a submission asks Admit with the usage of the owner's own tasks, which falls when tasks end and are
// deleted.
func TestAdmit(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	other := r.submit(Task{Model: "m", Owner: "other"}, "not counted")
	use := func() (got Usage) {
		t.Helper()
		refused := coded.Errorf(coded.FlowControl, "quotas.tasks", "no")
		_, _, err := r.Submit(t.Context(), Submission{Task: Task{Model: "m", Owner: "o"}, Data: text("x"),
			Admit: func(u Usage) error { got = u; return refused }})
		if err != refused {
			t.Fatalf("Submit returns %v, not the error of Admit", err)
		}
		return got
	}
	if u := use(); u != (Usage{}) {
		t.Errorf("without tasks: %+v", u)
	}
	a := r.submit(Task{Model: "m", Owner: "o"}, "four")
	r.submit(Task{Model: "m", Owner: "o"}, "four")
	if u := use(); u != (Usage{Waiting: 2, Bytes: 2*recordBytes + 8}) {
		t.Errorf("with two tasks: %+v", u)
	}
	if _, err := r.Cancel(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	if u := use(); u != (Usage{Waiting: 1, Bytes: 2*recordBytes + 8}) {
		t.Errorf("with a cancelled task: %+v", u)
	}
	if err := r.Delete(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	if u := use(); u != (Usage{Waiting: 1, Bytes: recordBytes + 4}) {
		t.Errorf("with a deleted task: %+v", u)
	}
	if _, err := r.Get(other.ID); err != nil {
		t.Error(err)
	}
}

// TestRetryIsAdmitted: a task that is queued again counts as a submission does, for the owner and for MaxWaiting.
func TestRetryIsAdmitted(t *testing.T) {
	r := open(t, t.TempDir(), Options{MaxWaiting: 1})
	task := r.submit(Task{Model: "m", Owner: "o"}, "x")
	if _, err := r.Cancel(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	refused := coded.Errorf(coded.FlowControl, "quotas.tasks", "no")
	if _, err := r.Retry(t.Context(), task.ID, func(Usage) error { return refused }); err != refused {
		t.Errorf("Retry returns %v, not the error of admit", err)
	}
	r.submit(Task{Model: "m"}, "x")
	if _, err := r.Retry(t.Context(), task.ID, nil); coded.CodeOf(err) != coded.Overloaded {
		t.Errorf("Retry in a full store: %v", err)
	}
}

// TestDeleteAfterChange: a task is deleted whose newest change another process has just made.
func TestDeleteAfterChange(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	other := r.another(Options{})
	for range 20 {
		task := r.submit(Task{Model: "m"}, "x")
		waitFor(t, func() bool { _, err := other.Get(task.ID); return err == nil })
		if _, err := other.Cancel(t.Context(), task.ID); err != nil {
			t.Fatal(err)
		}
		if err := r.Delete(t.Context(), task.ID); err != nil {
			t.Fatal(err)
		}
	}
}
