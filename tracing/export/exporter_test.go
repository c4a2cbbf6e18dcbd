//go:build !notracing

package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"millrace/internal/setting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is a sender with answers chosen by the test.
type scripted struct {
	answer func(ctx context.Context, batch []sdktrace.ReadOnlySpan) error

	mu      sync.Mutex
	batches [][]string // names of the spans of each attempt
	at      []time.Time
}

func (s *scripted) ExportSpans(ctx context.Context, batch []sdktrace.ReadOnlySpan) error {
	var names []string
	for _, span := range batch {
		names = append(names, span.Name())
	}
	s.mu.Lock()
	s.batches, s.at = append(s.batches, names), append(s.at, time.Now())
	s.mu.Unlock()
	return s.answer(ctx, batch)
}

func (s *scripted) Shutdown(context.Context) error { return nil }

// sizes returns the number of spans of each attempt.
func (s *scripted) sizes() (n []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.batches {
		n = append(n, len(b))
	}
	return n
}

func takes(context.Context, []sdktrace.ReadOnlySpan) error { return nil }

// spans returns n spans of one resource, called prefix0, prefix1, ...
func spans(prefix string, n int) []sdktrace.ReadOnlySpan {
	stubs := make(tracetest.SpanStubs, n)
	for i := range stubs {
		stubs[i] = tracetest.SpanStub{Name: fmt.Sprint(prefix, i), Resource: resource.Empty()}
	}
	return stubs.Snapshots()
}

// lines collects the messages of a logger.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// begin returns an exporter with a scripted sender.
func begin(cfg Config, answer func(context.Context, []sdktrace.ReadOnlySpan) error) (*Exporter, *scripted, *lines) {
	setting.Fill(&cfg)
	cfg.Exporter = OTLPHTTP
	s, l := &scripted{answer: answer}, &lines{}
	return start(cfg, s, slog.New(slog.NewTextHandler(l, nil))), s, l
}

// wantStats compares all counts; the counts of reasons missing in lost must be 0.
func wantStats(t *testing.T, e *Exporter, exported uint64, waiting int, lost map[Reason]uint64) {
	t.Helper()
	got := e.Stats()
	maps.DeleteFunc(got.Lost, func(_ Reason, n uint64) bool { return n == 0 })
	if got.Exported != exported || got.Waiting != waiting || !maps.Equal(got.Lost, lost) {
		t.Errorf("exported %d, waiting %d, lost %v; want %d, %d, %v", got.Exported, got.Waiting, got.Lost, exported,
			waiting, lost)
	}
}

func TestBatchesAreFullOrAsOldAsTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, _ := begin(Config{BatchSize: 4, Delay: time.Second}, takes)
		began := time.Now()
		e.Enqueue(spans("a", 3))
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		wantStats(t, e, 0, 3, nil)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		wantStats(t, e, 3, 0, nil)
		e.Enqueue(spans("b", 3))
		synctest.Wait()
		e.Enqueue(spans("c", 3))
		synctest.Wait()
		wantStats(t, e, 7, 2, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		wantStats(t, e, 9, 0, nil)
		if got := fmt.Sprint(s.batches); got != "[[a0 a1 a2] [b0 b1 b2 c0] [c1 c2]]" {
			t.Errorf("batches %s", got)
		}
		if d := s.at[1].Sub(began); d != time.Second {
			t.Errorf("a full batch was sent after %v, not at once", d)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestBatchHasOneResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, _ := begin(Config{}, takes)
		other := spans("b", 2)
		for i := range other {
			stub := tracetest.SpanStubFromReadOnlySpan(other[i])
			stub.Resource = Config{ServiceName: "other"}.Resource("1")
			other[i] = stub.Snapshot()
		}
		e.Enqueue(append(spans("a", 2), other...))
		e.Enqueue(spans("c", 1))
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(s.batches); got != "[[a0 a1] [b0 b1] [c0]]" {
			t.Errorf("batches %s", got)
		}
	})
}

func TestEnqueueDoesNotBlockAndCountsWhatHasNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		e, s, log := begin(Config{QueueSize: 10, BatchSize: 4}, func(context.Context, []sdktrace.ReadOnlySpan) error {
			<-release
			return nil
		})
		e.Enqueue(spans("a", 4))
		synctest.Wait() // the sender has these, and does not return
		for range 5 {
			e.Enqueue(spans("b", 3))
		}
		synctest.Wait()
		wantStats(t, e, 0, 10, map[Reason]uint64{QueueFull: 9})
		close(release)
		time.Sleep(time.Minute)
		synctest.Wait()
		wantStats(t, e, 10, 0, map[Reason]uint64{QueueFull: 9})
		if got := fmt.Sprint(s.sizes()); got != "[4 4 2]" {
			t.Errorf("batches of %s", got)
		}
		if text := log.String(); !strings.Contains(text, "spans were lost") ||
			!strings.Contains(text, "queue_full=9") || !strings.Contains(text, "tracing.queue_size") {
			t.Errorf("log %q", text)
		}
		_ = e.Close(t.Context())
	})
}

func TestBatchIsSentAgainUntilTheCollectorTakesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		e, s, log := begin(Config{Delay: time.Millisecond}, func(context.Context, []sdktrace.ReadOnlySpan) error {
			if attempts++; attempts < 4 {
				return errors.New("connection refused")
			}
			return nil
		})
		e.Enqueue(spans("a", 3))
		time.Sleep(30 * time.Second)
		synctest.Wait()
		wantStats(t, e, 3, 0, nil)
		if len(s.at) != 4 {
			t.Fatalf("%d attempts", len(s.at))
		}
		for i, at := range s.at[1:] {
			if wait, least := at.Sub(s.at[i]), 100*time.Millisecond<<i; wait < least || wait > 2*least {
				t.Errorf("wait %d: %v, want %v to %v", i, wait, least, 2*least)
			}
		}
		attempts = 2 // fails once
		e.Enqueue(spans("b", 1))
		time.Sleep(time.Second)
		synctest.Wait()
		wantStats(t, e, 4, 0, nil)
		if wait := s.at[5].Sub(s.at[4]); wait > 200*time.Millisecond {
			t.Errorf("the first wait after a success: %v", wait)
		}
		if text := log.String(); !strings.Contains(text, "they wait") ||
			!strings.Contains(text, "connection refused") || !strings.Contains(text, "exported again") {
			t.Errorf("log %q", text)
		}
		_ = e.Close(t.Context())
	})
}

func TestBatchIsLostAfterRetryFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, log := begin(Config{Retry: 5 * time.Second, Delay: time.Millisecond},
			func(context.Context, []sdktrace.ReadOnlySpan) error {
				return errors.New("connection refused")
			})
		began := time.Now()
		e.Enqueue(spans("a", 3))
		time.Sleep(time.Minute)
		synctest.Wait()
		wantStats(t, e, 0, 0, map[Reason]uint64{Failed: 3})
		if d := s.at[len(s.at)-1].Sub(began); d > 5*time.Second+time.Millisecond || len(s.at) < 4 {
			t.Errorf("%d attempts, the last after %v", len(s.at), d)
		}
		if text := log.String(); !strings.Contains(text, "failed=3") || !strings.Contains(text, advice[Failed]) ||
			!strings.Contains(text, "endpoint=http://127.0.0.1:4318/v1/traces") {
			t.Errorf("log %q", text)
		}
		_ = e.Close(t.Context())
	})
}

func TestCollectorSaysWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		e, s, _ := begin(Config{Delay: time.Millisecond}, func(context.Context, []sdktrace.ReadOnlySpan) error {
			if first {
				first = false
				return &failure{err: errors.New("busy"), reason: Refused, retry: true, after: 7 * time.Second}
			}
			return nil
		})
		e.Enqueue(spans("a", 1))
		time.Sleep(time.Minute)
		synctest.Wait()
		wantStats(t, e, 1, 0, nil)
		if d := s.at[1].Sub(s.at[0]); d != 7*time.Second {
			t.Errorf("the second attempt came after %v", d)
		}
		_ = e.Close(t.Context())
	})
}

func TestOneTooLargeSpanCostsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, _ := begin(Config{}, func(_ context.Context, batch []sdktrace.ReadOnlySpan) error {
			for _, span := range batch {
				if span.Name() == "a5" {
					return &failure{err: errors.New("larger than max"), reason: TooLarge, split: true}
				}
			}
			return nil
		})
		e.Enqueue(spans("a", 16))
		_ = e.Close(t.Context())
		wantStats(t, e, 15, 0, map[Reason]uint64{TooLarge: 1})
		if n := len(s.batches); n != 9 { // 16, then two of each 8, 4, 2 and 1
			t.Errorf("%d attempts: %v", n, s.batches)
		}
	})
}

func TestPartsOfABatchAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, _ := begin(Config{}, func(context.Context, []sdktrace.ReadOnlySpan) error {
			return fmt.Errorf("wrapped: %w", &failure{err: errors.New("some"), reason: Refused,
				lost: map[Reason]int{Refused: 2, TooLarge: 1}})
		})
		e.Enqueue(spans("a", 10))
		_ = e.Close(t.Context())
		wantStats(t, e, 7, 0, map[Reason]uint64{Refused: 2, TooLarge: 1})
	})
}

func TestPanicOfASenderLosesOnlyItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, log := begin(Config{Delay: time.Millisecond},
			func(_ context.Context, batch []sdktrace.ReadOnlySpan) error {
				if batch[0].Name() == "a0" {
					panic("at once")
				}
				return nil
			})
		e.Enqueue(spans("a", 2))
		time.Sleep(time.Minute)
		e.Enqueue(spans("b", 3))
		_ = e.Close(t.Context())
		wantStats(t, e, 3, 0, map[Reason]uint64{Failed: 2})
		if !strings.Contains(log.String(), "panic: at once") {
			t.Errorf("log %q", log)
		}
	})
}

func TestTimedOutBatchIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, _ := begin(Config{Timeout: 2 * time.Second, Delay: time.Millisecond},
			func(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
				<-ctx.Done()
				return ctx.Err()
			})
		e.Enqueue(spans("a", 2))
		time.Sleep(time.Minute)
		synctest.Wait()
		wantStats(t, e, 0, 0, map[Reason]uint64{Failed: 2})
		if len(s.at) != 1 {
			t.Errorf("%d attempts", len(s.at))
		}
		_ = e.Close(t.Context())
	})
}

func TestCloseSendsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, _ := begin(Config{BatchSize: 4, Delay: time.Minute}, takes)
		e.Enqueue(spans("a", 3))
		e.Enqueue(spans("b", 6))
		began := time.Now()
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("Close took %v", d)
		}
		e.Enqueue(spans("c", 5))
		wantStats(t, e, 9, 0, map[Reason]uint64{Closed: 5})
		if got := fmt.Sprint(s.sizes()); got != "[4 4 1]" {
			t.Errorf("batches of %s", got)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Errorf("the second Close: %v", err)
		}
	})
}

func TestCloseTriesEachBatchOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, _ := begin(Config{BatchSize: 4}, func(context.Context, []sdktrace.ReadOnlySpan) error {
			return errors.New("connection refused")
		})
		e.Enqueue(spans("a", 9))
		synctest.Wait() // the first batch waits for its second attempt
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
		wantStats(t, e, 0, 0, map[Reason]uint64{Failed: 9})
		if got := fmt.Sprint(s.sizes()); got != "[4 4 4 1]" {
			t.Errorf("batches of %s", got)
		}
	})
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, log := begin(Config{BatchSize: 4, Timeout: time.Minute},
			func(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
				<-ctx.Done()
				return ctx.Err()
			})
		e.Enqueue(spans("a", 9))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
		wantStats(t, e, 0, 0, map[Reason]uint64{Closed: 9})
		if !strings.Contains(log.String(), "closed=9") {
			t.Errorf("log %q", log)
		}
	})
}

func TestNoExporter(t *testing.T) {
	e, err := New(Config{}, slog.New(slog.DiscardHandler))
	if err != nil || e != nil {
		t.Fatalf("%v, %v", e, err)
	}
	e.Enqueue(spans("a", 2))
	wantStats(t, e, 0, 0, nil)
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestEnqueueDoesNotAllocate: a frame's spans are handed over without memory of their own.
func TestEnqueueDoesNotAllocate(t *testing.T) {
	e, _, _ := begin(Config{QueueSize: 1 << 16, BatchSize: 1 << 16, Delay: time.Minute}, takes)
	e.Enqueue(spans("a", 1<<14))
	e.mu.Lock()
	e.queue = e.queue[:0]
	e.mu.Unlock()
	batch := spans("b", 10)
	if n := testing.AllocsPerRun(1000, func() { e.Enqueue(batch) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	_ = e.Close(t.Context())
}
