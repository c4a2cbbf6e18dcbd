// Package remote is a source of tasks on another host: it claims tasks of a server over HTTP, fetches their inputs,
// and puts their results. The package must not know models.
package remote
