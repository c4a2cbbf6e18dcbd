package batching

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/stream"
)

// linear predicts the times of the simulation's workers.
func linear(n int) time.Duration { return time.Duration(5+n) * time.Millisecond }

func TestBatchers(t *testing.T) {
	const ms = time.Millisecond
	unknown := func(int) time.Duration { return 0 }
	for _, c := range []struct {
		kind string
		v    View
		take int
		wait time.Duration
	}{
		{Adaptive, View{Rows: 1, Idle: 1}, 1, 0},
		{Adaptive, View{Rows: 100, Idle: 1}, 8, 0},
		{Adaptive, View{Rows: 4, Idle: 4}, 1, 0},
		{Adaptive, View{Rows: 5, Idle: 4}, 2, 0},
		{Adaptive, View{Rows: 1, Idle: 16}, 1, 0},
		{Soft, View{Rows: 1, Idle: 1}, 0, 10 * ms},
		{Soft, View{Rows: 7, Idle: 1, Oldest: 3 * ms}, 0, 7 * ms},
		{Soft, View{Rows: 1, Idle: 1, Oldest: 10 * ms}, 1, 0},
		{Soft, View{Rows: 8, Idle: 1}, 8, 0},
		{Soft, View{Rows: 100, Idle: 1, Oldest: time.Hour}, 8, 0},
		{Hard, View{Rows: 7, Idle: 1, Oldest: time.Hour}, 0, 0},
		{Hard, View{Rows: 8, Idle: 1}, 8, 0},
		{Hard, View{Rows: 9, Idle: 1}, 8, 0},
		// A full batch takes 13 ms, and 2 ms of slack are kept.
		{Deadline, View{Rows: 1, Idle: 1, Pending: 1, Deadline: 50 * ms}, 0, 35 * ms},
		{Deadline, View{Rows: 7, Idle: 1, Pending: 1, Deadline: 15*ms + 1}, 0, 1},
		{Deadline, View{Rows: 7, Idle: 4, Pending: 1, Deadline: 15 * ms}, 7, 0},
		{Deadline, View{Rows: 7, Idle: 4, Pending: 1, Deadline: -ms}, 7, 0},
		{Deadline, View{Rows: 8, Idle: 4, Pending: 1, Deadline: NoDeadline}, 8, 0},
		{Deadline, View{Rows: 5, Idle: 4, Pending: 1, Deadline: NoDeadline}, 2, 0},
		{Deadline, View{Rows: 5, Idle: 4, Pending: 1, Deadline: 50 * ms, Predict: unknown}, 2, 0},
		{Deadline, View{Rows: 5, Idle: 2, Pending: 3, Deadline: 50 * ms}, 5, 0},
		{Deadline, View{Rows: 5, Idle: 3, Pending: 3, Deadline: 50 * ms}, 0, 35 * ms},
	} {
		b, err := NewBatcher(c.kind, 8, testParts)
		if err != nil {
			t.Fatal(err)
		}
		if c.v.Predict == nil {
			c.v.Predict = linear
		}
		if take, wait := b.Decide(c.v); take != c.take || wait != c.wait {
			t.Errorf("%s, %+v: take %d, wait %v; want %d, %v", c.kind, c.v, take, wait, c.take, c.wait)
		}
	}
}

func TestUnknownBatcher(t *testing.T) {
	_, err := NewBatcher("eager", 1, nil)
	var e *stream.Error
	if !errors.As(err, &e) || e.Code != stream.InvalidArgument || e.Field != "batching.kind" {
		t.Fatal(err)
	}
}

// Every kind takes at most the waiting rows and at most a full batch, waits only if its Needs allow waiting, forms a
// full batch without waiting, and uses only information listed in its Needs.
func TestEveryBatcher(t *testing.T) {
	for _, kind := range Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				most := rapid.IntRange(1, 64).Draw(t, "max")
				b, err := NewBatcher(kind.Name, most, nil)
				if err != nil {
					t.Fatal(err)
				}
				v := View{
					Rows: rapid.IntRange(1, 1000).Draw(t, "rows"), Idle: rapid.IntRange(1, 64).Draw(t, "idle"),
					Pending: rapid.IntRange(1, 4).Draw(t, "pending"), Predict: linear,
					Oldest:   time.Duration(rapid.IntRange(0, 200).Draw(t, "oldest")) * time.Millisecond,
					Deadline: time.Duration(rapid.IntRange(-10, 200).Draw(t, "deadline")) * time.Millisecond,
				}
				take, wait := b.Decide(v)
				needs := b.Needs()
				switch {
				case take < 0 || take > most || take > v.Rows || wait < 0 || take > 0 && wait > 0:
					t.Fatalf("take %d, wait %v", take, wait)
				case take == 0 && !needs.Arrivals:
					t.Fatal("waits while a worker is idle")
				case take == 0 && v.Rows >= most*v.Idle:
					t.Fatal("waits although there is a full batch for each worker")
				case !needs.Arrivals && take*v.Idle < min(v.Rows, most*v.Idle):
					t.Fatal("the batches of all idle workers leave frames out that would fit")
				case needs.Full && take != 0 && take != most:
					t.Fatal("not full")
				}
				other := v
				if !needs.Oldest {
					other.Oldest = 0
				}
				if !needs.Deadline {
					other.Deadline = NoDeadline
				}
				if take2, wait2 := b.Decide(other); take2 != take || wait2 != wait {
					t.Fatalf("%+v: take %d, wait %v; without what it does not need %d, %v", v, take, wait, take2, wait2)
				}
			})
		})
	}
}

func TestTimes(t *testing.T) {
	const ms = time.Millisecond
	now := stream.Instant(time.Hour)
	var table Times
	if d, probe := table.Predict(now, 3); d != 0 || probe {
		t.Fatal("predicts without a measurement")
	}
	table.Observe(now, 4, 8*ms)
	for n, want := range map[int]time.Duration{4: 8 * ms, 8: 16 * ms, 2: 8 * ms} {
		if d, _ := table.Predict(now, n); d != want {
			t.Errorf("%d rows: %v, want %v", n, d, want)
		}
	}
	table.Observe(now, 0, time.Hour) // nothing ran
	for range 30 {
		table.Observe(now, 4, 4*ms)
	}
	if d, _ := table.Predict(now, 4); d < 4*ms || d > 4*ms+ms/10 {
		t.Errorf("%v after thirty samples of 4ms", d)
	}
	table.Observe(now, 2, 3*ms)
	// at most as long as four, and at most half longer than two
	if d, _ := table.Predict(now, 3); d < 4*ms || d > 4*ms+ms/10 {
		t.Errorf("3 rows: %v", d)
	}
	if d, _ := table.Predict(now, 6); d < 6*ms || d > 6*ms+ms/10 {
		t.Errorf("6 rows: %v", d)
	}
	table.Observe(now, 32, 9*ms)
	if d, _ := table.Predict(now, 31); d != 9*ms {
		t.Errorf("31 rows: %v, and 32 take 9ms", d)
	}
	later := now.Add(probeAfter)
	if _, probe := table.Predict(later, 4); probe {
		t.Error("a probe while the table is fresh")
	}
	later++
	if d, probe := table.Predict(later, 4); !probe || d < 4*ms {
		t.Errorf("out of date: %v, probe %v", d, probe)
	}
	table.Observe(later, 1, ms)
	if d, probe := table.Predict(later, 4); probe || d != 4*ms {
		t.Errorf("the old measurements count: %v", d)
	}
	table.Observe(later, 1, 0)
	if d, _ := table.Predict(later, 1); d <= 0 {
		t.Error("a run of no time counts as no measurement")
	}
}
