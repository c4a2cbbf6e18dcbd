//go:build !nometrics

// Command generate writes the files that follow from the code: docs/metrics.md from the list of metrics, and the
// dashboards of Grafana, the rules of Prometheus and docs/runbooks.md from dashboards.go and rules.go. The command
// must not know how a server works.
package main

//go:generate go run . -root ../..

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"millrace/compat"
	"millrace/tracing"
)

func main() {
	root := flag.String("root", ".", "the root of the repository")
	flag.Parse()
	for path, text := range files() {
		if err := write(filepath.Join(*root, path), text); err != nil {
			fmt.Fprintln(os.Stderr, "generate:", err)
			os.Exit(1)
		}
	}
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// requestNames returns the names of the metrics of requests in other systems.
func requestNames() (out []*tracing.RequestNames) {
	for _, s := range compat.Styles {
		if s.Metrics != nil {
			out = append(out, &s.Metrics.Names)
		}
	}
	return out
}

// files returns the generated files, by their paths.
func files() map[string]string {
	out := map[string]string{
		"docs/metrics.md":             tracing.Markdown(requestNames()...),
		"docs/runbooks.md":            runbooks(),
		"deploy/prometheus/rules.yml": rulesFile(alerts),
		"deploy/grafana/provisioning/datasources/sources.yml": datasources(),
		"deploy/grafana/provisioning/dashboards/folder.yml":   folder(),
	}
	for _, d := range dashboards {
		out["deploy/grafana/dashboards/"+d.uid+".json"] = d.grafana()
	}
	return out
}
