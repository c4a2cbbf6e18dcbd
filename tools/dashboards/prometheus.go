//go:build !nometrics

package main

import (
	"fmt"
	"strings"
)

// recording is a rule that stores the value of an expression as a new series.
type recording struct{ name, expr string }

// alert is an alerting rule with its runbook.
type alert struct {
	name     string
	severity string // critical: now; warning: today; info
	hold     string // how long the expression must be true
	expr     string
	summary  string   // a single line, with the labels of the alert
	meaning  string   // meaning of the alert, for the runbook
	steps    string   // the remedy
	input    []string // series that trigger the alert
}

// runbookURL is where the runbooks are, for links from alerts.
const runbookURL = "/docs/runbooks.md"

// rulesFile returns the rules in the format of Prometheus.
func rulesFile(alerts []alert) string {
	var b strings.Builder
	b.WriteString("# Written by go generate -C tools ./dashboards from rules.go.\ngroups:\n  - name: " +
		"millrace-ratios\n    rules:\n")
	for _, r := range recordings() {
		fmt.Fprintf(&b, "      - record: %s\n        expr: %s\n", r.name, quote(r.expr))
	}
	b.WriteString("  - name: millrace-alerts\n    rules:\n")
	for _, a := range alerts {
		fmt.Fprintf(&b, "      - alert: %s\n        expr: %s\n        for: %s\n        labels: {severity: %s}\n     "+
			"   annotations:\n          summary: %s\n          runbook_url: %s\n",
			a.name, quote(a.expr), a.hold, a.severity, quote(a.summary), quote(runbookURL+"#"+strings.ToLower(a.name)))
	}
	return b.String()
}

// quote writes a scalar of YAML in single quotes.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// runbooks returns docs/runbooks.md.
func runbooks() string {
	var b strings.Builder
	b.WriteString(`# Runbooks
<!-- Written by go generate -C tools ./dashboards from rules.go. -->
What to do when an alert of ` + "`deploy/prometheus/rules.yml`" + ` fires: ` + "`critical`" + ` at once, ` +
		"`warning`" + ` today. The file has the conditions; [dashboards.md](dashboards.md) shows the panels.
`)
	for _, a := range alerts {
		fmt.Fprintf(&b, "\n## %s\n%s, after %s. %s\n\n%s\n", a.name,
			strings.ToUpper(a.severity[:1])+a.severity[1:], a.hold, a.meaning, a.steps)
	}
	return b.String()
}
