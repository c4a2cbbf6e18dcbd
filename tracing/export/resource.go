//go:build !notracing

package export

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"millrace/internal/setting"
)

// Resource describes the service: name, version, and tracing.resource_attributes, which may replace the version but
// not the name. c must be valid.
func (c Config) Resource(version string) *resource.Resource {
	setting.Fill(&c)
	var attributes []attribute.KeyValue
	if version != "" {
		attributes = append(attributes, semconv.ServiceVersion(version))
	}
	more, _ := pairs("resource_attributes", c.Attributes)
	for name, value := range more {
		attributes = append(attributes, attribute.String(name, value))
	}
	return resource.NewWithAttributes(semconv.SchemaURL, append(attributes, semconv.ServiceName(c.ServiceName))...)
}
