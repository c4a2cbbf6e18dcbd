// Package config composes the configuration from a file, variables, flags and --model
// lists. The name, bounds and default of a setting are in the tags of the struct that it
// configures (internal/setting): Config here, workers.Config for a model, streams.Config
// for a server stream, and the structs that batchers, stages, kinds of workers, sources
// and sinks register.
//
// It must not know what a setting does.
package config
