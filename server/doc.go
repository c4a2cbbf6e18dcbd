// Package server composes everything: configuration, models, adapters, metrics.
// It implements the door that adapters enter by, and is what a Go program
// embeds. It decides nothing about frames.
package server
