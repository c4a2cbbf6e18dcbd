//go:build !notracing

package spans

import (
	"sync/atomic"

	"millrace/stream"
	"millrace/workers"
)

// record is one kept frame. The spans can be built when the batch has released the request and the result was
// written: then nothing writes to the request any more.
type record struct {
	m       *model
	r       *stream.Request
	why     why
	ended   stream.Instant
	bytes   int            // of the result's outputs
	batch   *batchRun      // set before Unbound; nil = not run in a batch
	written stream.Instant // set by Released
	state   atomic.Uint32
}

var _ stream.Watcher = (*record)(nil)

// The bits of a record's state.
const (
	unbound  = 1
	released = 2
)

// Unbound implements stream.Watcher.
func (k *record) Unbound() { k.markState(unbound) }

// Released implements stream.Watcher.
func (k *record) Released() {
	k.written = stream.Now()
	k.markState(released)
}

func (k *record) markState(bit uint32) {
	if before := k.state.Or(bit); before|bit == unbound|released && before&bit == 0 {
		k.m.t.enqueue(job{frame: k})
	}
}

// refusal is a kept frame not accepted by a stream.
type refusal struct {
	m       *model
	frame   stream.Frame // without its payload
	options stream.Options
	result  stream.Result
	at      stream.Instant
	why     why
}

// maxMembers bounds the members of a batch named in links and in the API, and equals the SDKs' limit of links per
// span.
const maxMembers = 128

// batchRun is one run of a batch with a kept member.
type batchRun struct {
	m                        *model
	trace                    stream.TraceID
	span                     stream.SpanID
	gathered, started, ended stream.Instant
	rows, requests           int
	err                      error
	members                  []member // maxMembers at most
}

// member is a frame of a batch, kept or not.
type member struct {
	trace  stream.TraceID
	span   stream.SpanID
	listed bool
}

func newBatchRun(m *model, b workers.BatchRun) *batchRun {
	run := &batchRun{
		m: m, trace: stream.NewTraceID(), span: stream.NewSpanID(),
		gathered: b.Batch.Gathered, started: b.Started, ended: b.Ended, rows: b.Batch.Rows,
		requests: len(b.Batch.Requests), err: b.Err,
	}
	run.members = make([]member, 0, min(run.requests, maxMembers))
	for _, r := range b.Batch.Requests[:cap(run.members)] {
		run.members = append(run.members, member{r.Trace, r.Span, r.Watcher() != nil})
	}
	return run
}
