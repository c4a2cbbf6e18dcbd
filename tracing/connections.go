package tracing

import (
	"github.com/prometheus/client_golang/prometheus"

	"millrace/internal/accept"
)

var (
	connectionsOpen    = desc("millrace_connections", "Open TCP connections, by listener.", "listener")
	connectionsRefused = desc("millrace_connections_refused_total", "Connections closed at once because limits.max_connections were open.", "listener")
	acceptFailures     = desc("millrace_accept_failures_total", "Failed attempts to accept a connection, for example because the process had no file descriptor left.", "listener")
)

// connectionCollector reads the listeners' counters at each scrape.
type connectionCollector struct {
	read func() map[string]accept.Stats
}

// Describe lists what Collect sends.
func (connectionCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- connectionsOpen
	ch <- connectionsRefused
	ch <- acceptFailures
}

// Collect reads the counters.
func (c connectionCollector) Collect(ch chan<- prometheus.Metric) {
	for name, st := range c.read() {
		ch <- prometheus.MustNewConstMetric(connectionsOpen, prometheus.GaugeValue, float64(st.Open), name)
		ch <- prometheus.MustNewConstMetric(connectionsRefused, prometheus.CounterValue, float64(st.Refused), name)
		ch <- prometheus.MustNewConstMetric(acceptFailures, prometheus.CounterValue, float64(st.Failed), name)
	}
}
