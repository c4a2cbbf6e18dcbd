package tracing

import (
	"github.com/prometheus/client_golang/prometheus"

	"millrace/internal/accept"
)

var (
	connectionsOpen    = desc("millrace_connections", "Open TCP connections, by listener.", "listener")
	connectionsRefused = desc("millrace_connections_refused_total", "Connections closed at once, because as many were open as limits.max_connections allows.", "listener")
	acceptFailures     = desc("millrace_accept_failures_total", "Attempts to accept a connection that failed, for want of open files say.", "listener")
)

// connections reads the figures of the listeners at each scrape.
type connections struct {
	read func() map[string]accept.Stats
}

// Describe lists what Collect sends.
func (connections) Describe(ch chan<- *prometheus.Desc) {
	ch <- connectionsOpen
	ch <- connectionsRefused
	ch <- acceptFailures
}

// Collect reads the figures.
func (c connections) Collect(ch chan<- prometheus.Metric) {
	for name, st := range c.read() {
		ch <- prometheus.MustNewConstMetric(connectionsOpen, prometheus.GaugeValue, float64(st.Open), name)
		ch <- prometheus.MustNewConstMetric(connectionsRefused, prometheus.CounterValue, float64(st.Refused), name)
		ch <- prometheus.MustNewConstMetric(acceptFailures, prometheus.CounterValue, float64(st.Failed), name)
	}
}
