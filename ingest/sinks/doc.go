// Package sinks takes the results of the server's own streams elsewhere, as
// lines of JSON: to files, webhooks and Unix sockets.
//
// It owns delivery: buffering, retries and the count of what was lost. It must
// not know streams, models or frames. A new sink is one file with a struct of
// settings and one call of Register.
package sinks
