//go:build !nometrics

package main

import (
	"fmt"
	"strings"
)

// Queries for histograms ask for the native histogram, and for the classic histogram where Prometheus stores no
// native histograms. Both need Prometheus 2.40, the first version to parse histogram_sum and histogram_count.

// leastPrometheus is the oldest version that can evaluate the dashboards' queries.
const leastPrometheus = "2.40"

// Selectors of the dashboards' variables.
const (
	ofModel  = `{model=~"$model"}`
	ofStream = `{stream=~"$stream"}`
)

// window is the range of rates: Grafana sets the range by the scrape interval and the zoom.
const window = "$__rate_interval"

// rate returns the sum of a counter's rates, by labels.
func rate(counter string, by ...string) string {
	return fmt.Sprintf("sum%s (rate(%s[%s]))", grouped(by), counter, window)
}

// quantile returns a quantile of a histogram, by labels.
func quantile(q float64, name, selector string, by ...string) string {
	return fmt.Sprintf("histogram_quantile(%v, sum%s (rate(%s%s[%s]))) or histogram_quantile(%v, sum%s "+
		"(rate(%s_bucket%s[%s])))",
		q, grouped(by), name, selector, window, q, grouped(append([]string{"le"}, by...)), name, selector, window)
}

// sumOf returns the rate of the sum of a histogram's samples, by labels.
func sumOf(name, selector string, by ...string) string {
	return fmt.Sprintf("(histogram_sum(sum%s (rate(%s%s[%s]))) or sum%s (rate(%s_sum%s[%s])))",
		grouped(by), name, selector, window, grouped(by), name, selector, window)
}

// countOf returns the rate of a histogram's samples, by labels.
func countOf(name, selector string, by ...string) string {
	return fmt.Sprintf("(histogram_count(sum%s (rate(%s%s[%s]))) or sum%s (rate(%s_count%s[%s])))",
		grouped(by), name, selector, window, grouped(by), name, selector, window)
}

func grouped(by []string) string {
	if len(by) == 0 {
		return ""
	}
	return " by (" + strings.Join(by, ", ") + ")"
}
