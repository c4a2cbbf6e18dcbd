package batching

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/stream"
)

func TestBatchers(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		kind          Kind
		oldest        time.Duration
		waiting, idle int
		take          int
		wait          time.Duration
	}{
		{Adaptive, 0, 1, 1, 1, 0},
		{Adaptive, 0, 100, 1, 8, 0},
		{Adaptive, 0, 4, 4, 1, 0},
		{Adaptive, 0, 5, 4, 2, 0},
		{Adaptive, 0, 1, 16, 1, 0},
		{Soft, 0, 1, 1, 0, 10 * ms},
		{Soft, 3 * ms, 7, 1, 0, 7 * ms},
		{Soft, 10 * ms, 1, 1, 1, 0},
		{Soft, 0, 8, 1, 8, 0},
		{Soft, time.Hour, 100, 1, 8, 0},
		{Hard, time.Hour, 7, 1, 0, 0},
		{Hard, 0, 8, 1, 8, 0},
		{Hard, 0, 9, 1, 8, 0},
	} {
		b, err := NewBatcher(c.kind, 8, 10*ms)
		if err != nil {
			t.Fatal(err)
		}
		if take, wait := b.Decide(c.oldest, c.waiting, c.idle); take != c.take || wait != c.wait {
			t.Errorf("%s, %d waiting for %v, %d idle: take %d, wait %v", c.kind, c.waiting, c.oldest, c.idle, take, wait)
		}
	}
	if _, err := NewBatcher("eager", 1, 0); stream.CodeOf(err) != stream.InvalidArgument {
		t.Fatal(err)
	}
}

func TestBatcherProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 64).Draw(t, "max")
		delay := time.Duration(rapid.IntRange(0, 100).Draw(t, "delay"))
		oldest := time.Duration(rapid.IntRange(0, 200).Draw(t, "oldest"))
		waiting, idle := rapid.IntRange(1, 1000).Draw(t, "waiting"), rapid.IntRange(1, 64).Draw(t, "idle")
		kind := rapid.SampledFrom([]Kind{Adaptive, Soft, Hard}).Draw(t, "kind")
		b, _ := NewBatcher(kind, most, delay)
		take, wait := b.Decide(oldest, waiting, idle)
		switch {
		case take < 0 || take > most || take > waiting || wait < 0 || take > 0 && wait > 0:
			t.Fatalf("take %d, wait %v", take, wait)
		case kind == Adaptive && take == 0:
			t.Fatal("waits while a worker is idle")
		case kind == Adaptive && take*idle < min(waiting, most*idle):
			t.Fatal("the idle workers together leave frames that would fit")
		case kind == Soft && take == 0 && (wait == 0 || oldest+wait > delay):
			t.Fatalf("asks again after %v, past the delay", wait)
		case kind == Hard && take != 0 && take != most:
			t.Fatal("not full")
		}
	})
}

func TestTimes(t *testing.T) {
	const ms = time.Millisecond
	now := stream.Instant(time.Hour)
	var table Times
	if d, probe := table.Predict(now, 3); d != 0 || probe {
		t.Fatal("knows something of nothing")
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
	if d, _ := table.Predict(now, 3); d != 4500*time.Microsecond {
		t.Errorf("3 rows: %v", d)
	}
	later := now.Add(probeAfter)
	if _, probe := table.Predict(later, 4); probe {
		t.Error("a probe while the table is fresh")
	}
	later++
	if d, probe := table.Predict(later, 4); !probe || d != 0 {
		t.Errorf("old, and believed: %v", d)
	}
	table.Observe(later, 1, ms)
	if d, probe := table.Predict(later, 4); probe || d != 4*ms {
		t.Errorf("the old measurements count: %v", d)
	}
	table.Observe(later, 1, 0)
	if d, _ := table.Predict(later, 1); d <= 0 {
		t.Error("a run of no time is taken for none")
	}
}
