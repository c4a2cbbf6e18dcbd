// Package sinks delivers the results or events of server streams as lines of JSON: to files, webhooks, Unix sockets and
// brokers.
//
// Package sinks owns delivery: buffering, retries and the count of lost results. The package must not know streams,
// models or frames. A new sink is one file with a struct of settings and one call of Register.
package sinks
