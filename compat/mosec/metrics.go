package mosec

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/apps"
)

// counts are the metrics of an application. Their labels are bounded by its routes and
// stages.
type counts struct {
	mu        sync.Mutex
	remaining int
	requests  map[outcome]uint64
	total     histogram
	stages    map[string]*stageCounts
	longest   int // buckets of durations
}

type outcome struct {
	status int
	path   string
}

type stageCounts struct{ rows, gathered, took histogram }

func newCounts(limit time.Duration) *counts {
	n := 13
	if ms := float64(limit) / float64(time.Millisecond); ms > 1 {
		n = int(math.Ceil(math.Log2(ms))) + 1
	}
	return &counts{requests: map[outcome]uint64{}, stages: map[string]*stageCounts{}, longest: n,
		total: newHistogram(0.001, n)}
}

func (m *counts) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remaining++
}

func (m *counts) end(of outcome, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remaining--
	m.requests[of]++
	if of.status == fiber.StatusOK {
		m.total.observe(took.Seconds())
	}
}

var _ apps.StageCounter = (*counts)(nil)

// CountRun implements apps.StageCounter.
func (m *counts) CountRun(stage string, rows int, gathered, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stages[stage]
	if s == nil {
		s = &stageCounts{newHistogram(1, 10), newHistogram(0.001, 13), newHistogram(0.001, m.longest)}
		m.stages[stage] = s
	}
	s.rows.observe(float64(rows))
	s.gathered.observe(gathered.Seconds())
	s.took.observe(took.Seconds())
}

// text writes the metrics in Prometheus' text format.
func (m *counts) text(namespace string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b bytes.Buffer
	head := func(name, kind, help string) {
		fmt.Fprintf(&b, "# HELP %s_%s %s\n# TYPE %[1]s_%[2]s %[4]s\n", namespace, name, help, kind)
	}
	head("throughput_total", "counter", "requests by route and status")
	routes := slices.SortedFunc(maps.Keys(m.requests), func(a, b outcome) int {
		return slices.Compare([]string{a.path, strconv.Itoa(a.status)}, []string{b.path, strconv.Itoa(b.status)})
	})
	for _, r := range routes {
		fmt.Fprintf(&b, "%s_throughput_total{code=\"%d\",endpoint=%q} %d\n", namespace, r.status, r.path, m.requests[r])
	}
	stages := slices.Sorted(maps.Keys(m.stages))
	each := func(name, help string, of func(*stageCounts) *histogram) {
		head(name, "histogram", help)
		if name == "process_duration_second" && m.total.count > 0 {
			m.total.write(&b, namespace+"_"+name, "total", "total")
		}
		for _, s := range stages {
			of(m.stages[s]).write(&b, namespace+"_"+name, s, "all")
		}
	}
	each("process_duration_second", "time of the runs of each stage, and of whole requests",
		func(s *stageCounts) *histogram {
			return &s.took
		})
	each("batch_size", "requests in the runs of each stage", func(s *stageCounts) *histogram { return &s.rows })
	each("batch_duration_second", "time in which the batches of each stage were gathered",
		func(s *stageCounts) *histogram {
			return &s.gathered
		})
	head("remaining_task", "gauge", "requests that have no answer yet")
	fmt.Fprintf(&b, "%s_remaining_task %d\n", namespace, m.remaining)
	return b.Bytes()
}

// histogram counts values in buckets, each of which is twice the one before.
type histogram struct {
	first   float64
	buckets []uint64 // the last bucket has the larger values
	sum     float64
	count   uint64
}

func newHistogram(first float64, n int) histogram {
	return histogram{first: first, buckets: make([]uint64, n+1)}
}

func (h *histogram) observe(v float64) {
	i, bound := 0, h.first
	for i < len(h.buckets)-1 && v > bound {
		i++
		bound *= 2
	}
	h.buckets[i]++
	h.sum += v
	h.count++
}

func (h *histogram) write(b *bytes.Buffer, name, stage, connection string) {
	labels := fmt.Sprintf("stage=%q,connection=%q", stage, connection)
	n, bound := uint64(0), h.first
	for _, k := range h.buckets[:len(h.buckets)-1] {
		n += k
		fmt.Fprintf(b, "%s_bucket{le=\"%s\",%s} %d\n", name, strconv.FormatFloat(bound, 'g', 6, 64), labels, n)
		bound *= 2
	}
	fmt.Fprintf(b, "%[1]s_bucket{le=\"+Inf\",%[2]s} %[3]d\n%[1]s_sum{%[2]s} %[4]s\n%[1]s_count{%[2]s} %[3]d\n", name,
		labels, h.count, strconv.FormatFloat(h.sum, 'g', -1, 64))
}
