package stream

// TaskSpan is the submission of a task, or an ended attempt, for the trace of the task.
type TaskSpan struct {
	TraceContext         // with the parent of the span
	Span         SpanID  // of the submission, or of the attempt: the parent of the spans of frames
	Task         string  // the id
	Model        string  // of the task
	Version      string  // "" = the version that the model's weights choose
	User         string  // who submitted the task; "" = unknown
	Bytes        int64   // of the input
	Attempt      int     // the number; 0 = the submission
	Consumer     string  // of the attempt
	From         Instant // the begin of the submission; of an attempt, when the task was queued
	Begun        Instant // of the attempt
	To           Instant
	Outcome      string // of the attempt: finished, failed, released or lost
	Err          error  // of a failed or lost attempt
}

// TaskTracer keeps traces of tasks. A TaskTracer is safe for concurrent use.
type TaskTracer interface {
	// SampleTask decides for a submission or an attempt whether the trace is kept, gives a context without a trace a
	// new trace, and returns the id of a new span.
	SampleTask(c *TraceContext, model string) SpanID
	// KeepTask passes a span to the exporter if SampleTask or a rule for failures keeps the span.
	KeepTask(s TaskSpan)
}
