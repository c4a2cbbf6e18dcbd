// Package ssf serves applications that were written for Simple Server Framework: the command millrace ssf with the
// options of gc-ssf, the file ssf_config.yaml, the routes, the messages of gRPC, and the names of metrics.
//
// It owns all that the framework defines. It must not know the server.
package ssf

import (
	"slices"

	"millrace/apps"
	"millrace/compat/style"
	"millrace/internal/setting"
	"millrace/stream/coded"
	"millrace/tracing"
	"millrace/workers/python"
)

const name = "ssf" // of the style

// format is the form of configuration files.
var format = apps.Format{Name: name, File: configFile, Is: isApplication, Needs: needs}

// Style is the style of applications of Simple Server Framework.
var Style = style.Style{
	HTTP: &routes, GRPC: &messages, Python: &python.Style{Name: name, File: configFile, Options: childOptions},
	Metrics: &style.Metrics{On: namesOn, Names: tracing.RequestNames{
		Route:  [2]string{"handler", "the route, such as /v1/E, or of gRPC ModelInfer/APPLICATION/v1/E"},
		Status: [2]string{"status", "2xx, 4xx and so on; of gRPC the name of the code, such as OK"},
		GRPC:   tracing.GRPCName, InProgram: "ssf_dispatch_latency",
		Title: "Of applications of Simple Server Framework",
		Intro: "With `metrics.ssf`, set by `millrace ssf`, the metrics above (and those of gRPC, with names in " +
			"`grpc_`) have the labels of this additional metric.",
	}},
	Command:     &command,
	Application: &format,
}

// Settings are the settings of the server for the style, in the section metrics.
type Settings struct {
	SSF bool `yaml:"ssf" advanced:"yes" help:"label the metrics of requests as Simple Server Framework does (handler, status), and add ssf_dispatch_latency; with metrics.buckets, other histograms have no buckets in plain text"`
}

func init() { setting.Register[Settings](setting.Server, "metrics") }

// Validate implements the validation of config.Config.Parts.
func (s *Settings) Validate() error {
	if s.SSF && !tracing.WithMetrics {
		return coded.Errorf(coded.InvalidArgument, "metrics.ssf",
			"this program has no metrics: it was built with the tag nometrics")
	}
	return nil
}

// namesOn reports whether metrics.ssf is set.
func namesOn(parts []any) bool {
	s, _ := setting.Part[Settings](parts)
	return s.SSF
}

// withNames returns settings of parts in which metrics.ssf is set.
func withNames(parts []any) []any {
	parts = slices.DeleteFunc(slices.Clone(parts), func(p any) bool {
		_, is := p.(*Settings)
		return is
	})
	return append(parts, &Settings{SSF: true})
}
