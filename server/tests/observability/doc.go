// Package observability tests the metrics, traces, logs, profiles and the status page of a server.
package observability
