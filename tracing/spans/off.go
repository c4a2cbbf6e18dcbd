//go:build notracing

package spans

import (
	"context"
	"log/slog"
	"reflect"

	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/tracing/export"
	"millrace/workers"
)

func init() {
	setting.Register[refusedSpans](setting.Server, section)
	setting.Register[refusedExport](setting.Server, section)
}

// The settings of a program without tracing: all are refused.
type (
	refusedSpans struct {
		Config `yaml:",inline"`
	}
	refusedExport struct {
		export.Config `yaml:",inline"`
	}
)

// Validate refuses the settings.
func (c refusedSpans) Validate() error { return refuse(&c.Config, new(Config)) }

// Validate refuses the settings.
func (c refusedExport) Validate() error { return refuse(&c.Config, new(export.Config)) }

// refuse returns an error for a setting that differs from its default.
func refuse(set, defaults any) error {
	setting.Fill(defaults)
	if reflect.DeepEqual(set, defaults) {
		return nil
	}
	return coded.Errorf(coded.Unsupported, section,
		"this program was built without tracing (build tag notracing): leave the settings of %s out", section)
}

// Tracer is nil in a program without tracing.
type Tracer struct{}

// Open returns nil.
func Open([]any, string, *slog.Logger) (*Tracer, error) { return nil, nil }

// Close does nothing.
func (*Tracer) Close() {}

// Model returns no hooks.
func (*Tracer) Model(*stream.Model) workers.Hooks { return workers.Hooks{} }

// SampleTask implements stream.TaskTracer.
func (*Tracer) SampleTask(*stream.TraceContext, string) stream.SpanID { return stream.SpanID{} }

// KeepTask implements stream.TaskTracer.
func (*Tracer) KeepTask(stream.TaskSpan) {}

// Link returns "".
func (*Tracer) Link(stream.TraceID) string { return "" }

// List returns none.
func (*Tracer) List(Query) []*KeptFrame { return []*KeptFrame{} }

// Find returns none.
func (*Tracer) Find(context.Context, string) *KeptFrame { return nil }

// Stats returns none.
func (*Tracer) Stats() Stats { return Stats{} }

// FromContext returns none.
func FromContext(context.Context) (c stream.TraceContext) { return c }

// Ratio returns 0: nothing is kept.
func (*Tracer) Ratio() float64 { return 0 }

// ConfiguredRatio returns 0.
func (*Tracer) ConfiguredRatio() float64 { return 0 }

// SetRatio returns an error.
func (*Tracer) SetRatio(float64) error {
	return stream.Errorf(stream.Unsupported, "trace_rate", "cannot be set: this build keeps no traces")
}
