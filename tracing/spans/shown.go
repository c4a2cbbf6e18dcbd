//go:build !notracing

package spans

import (
	"context"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"millrace/stream"
)

// keptRings holds the newest kept frames in a ring for each rule, so that a rule with many frames does not displace
// frames of other rules.
type keptRings struct {
	size int
	mu   sync.Mutex
	all  [len(rules)][]*KeptFrame
	next [len(rules)]int
}

func (s *keptRings) add(rule int, k *KeptFrame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all[rule]) < s.size {
		s.all[rule] = append(s.all[rule], k)
		return
	}
	s.all[rule][s.next[rule]] = k
	s.next[rule] = (s.next[rule] + 1) % s.size
}

// unbuiltTraces counts the kept frames of each trace without built spans: their clients may already have an answer
// saying that the frame was kept.
type unbuiltTraces struct {
	mu      sync.Mutex
	frames  map[stream.TraceID]int
	removed chan struct{} // closed when the last frame of a trace is removed; nil: nobody waits
}

func (u *unbuiltTraces) add(id stream.TraceID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.frames == nil {
		u.frames = map[stream.TraceID]int{}
	}
	u.frames[id]++
}

func (u *unbuiltTraces) remove(id stream.TraceID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.frames[id]--; u.frames[id] > 0 {
		return
	}
	delete(u.frames, id)
	if u.removed != nil {
		close(u.removed)
		u.removed = nil
	}
}

// wait returns when no frame of a trace is unbuilt, or ctx has ended.
func (u *unbuiltTraces) wait(ctx context.Context, id stream.TraceID) {
	for {
		u.mu.Lock()
		if u.frames[id] == 0 {
			u.mu.Unlock()
			return
		}
		if u.removed == nil {
			u.removed = make(chan struct{})
		}
		removed := u.removed
		u.mu.Unlock()
		select {
		case <-removed:
		case <-ctx.Done():
			return
		}
	}
}

// Find returns the newest kept frame of a trace, or nil. A kept frame is shown a moment after its answer was written;
// Find waits for that moment, or until ctx ends.
func (t *Tracer) Find(ctx context.Context, id string) *KeptFrame {
	if t == nil {
		return nil
	}
	var trace stream.TraceID
	if len(id) == hex.EncodedLen(len(trace)) {
		if _, err := hex.Decode(trace[:], []byte(id)); err == nil {
			t.unbuilt.wait(ctx, trace)
		}
	}
	for _, k := range t.List(Query{Trace: id, Limit: 1}) {
		return k
	}
	return nil
}

func (q *Query) matches(k *KeptFrame) bool {
	return (q.Model == "" || q.Model == k.Model) && (q.Trace == "" || q.Trace == k.TraceID) &&
		(q.Reason == "" || q.Reason == k.Reason || q.Reason == k.Code || slices.Contains(k.Kept, q.Reason))
}

// List returns kept frames, the newest first. The frames are shared and must not be changed.
func (t *Tracer) List(q Query) []*KeptFrame {
	out := []*KeptFrame{}
	if t == nil {
		return out
	}
	t.shown.mu.Lock()
	for _, ring := range t.shown.all {
		for _, k := range ring {
			if q.matches(k) {
				out = append(out, k)
			}
		}
	}
	t.shown.mu.Unlock()
	slices.SortStableFunc(out, func(a, b *KeptFrame) int { return int(b.began - a.began) })
	if q.Limit > 0 && len(out) > q.Limit {
		out = out[:q.Limit]
	}
	return out
}

// summary describes the frame for List.
func (b *tree) summary(c *Config) *KeptFrame {
	res, root := b.result, &b.spans[0]
	id := hex.EncodeToString(res.Trace[:])
	out := &KeptFrame{
		TraceID: id, SpanID: spanID(root.id), ParentID: spanID(root.parent),
		Time:  root.from.Wall().UTC().Format("2006-01-02T15:04:05.000000Z07:00"),
		Model: b.model.model.Name, Version: b.model.model.Version, Protocol: b.options.Protocol,
		Stream: b.options.Name, Seq: res.Seq,
		Outcome: res.Outcome.String(), Reason: string(res.Reason), Kept: b.why.names(),
		DurationUS: micro(root.to.Sub(root.from)),
		BatchRows:  res.BatchSize, URL: c.link(id), Spans: make([]KeptSpan, len(b.spans)), Batch: []Member{},
		began: root.from,
	}
	if res.Err != nil {
		out.Code, out.Message = string(stream.CodeOf(res.Err)), clip(res.Err.Error())
	}
	for i := range b.spans {
		s := &b.spans[i]
		in := KeptSpan{
			Name: s.name, SpanID: spanID(s.id), ParentID: spanID(s.parent), StartUS: micro(s.from.Sub(root.from)),
			DurationUS: micro(s.to.Sub(s.from)),
			Attributes: make(map[string]any, len(s.attributes)),
		}
		for _, a := range s.attributes {
			in.Attributes[string(a.Key)] = a.Value.AsInterface()
		}
		out.Spans[i] = in
	}
	if b.batch != nil {
		for _, m := range b.batch.members {
			if m.span != root.id {
				out.Batch = append(out.Batch, Member{hex.EncodeToString(m.trace[:]), spanID(m.span)})
			}
		}
	}
	return out
}

func micro(d time.Duration) int64 { return d.Microseconds() }

func spanID(id stream.SpanID) string {
	if id == (stream.SpanID{}) {
		return ""
	}
	return hex.EncodeToString(id[:])
}

// Link returns the address of a trace's page, by tracing.ui_url, or "".
func (t *Tracer) Link(id stream.TraceID) string { return t.cfg.link(hex.EncodeToString(id[:])) }
