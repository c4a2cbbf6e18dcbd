// Package server composes configuration, models, adapters and metrics. Package server implements ingest.Backend,
// which the adapters call; Go programs embed package server. Package server does not process frames.
package server
