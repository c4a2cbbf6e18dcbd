// Package server composes everything: configuration, models, adapters, metrics.
// It implements ingest.Backend, which the adapters call, and is what a Go program
// embeds. It decides nothing about frames.
package server
