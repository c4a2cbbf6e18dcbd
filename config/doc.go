// Package config composes the configuration from a file, variables, flags and --model lists. The name, limits and
// default of a setting are tags in the struct with the setting (internal/setting): Config here, workers.Config for a
// model, streams.Config for a server stream, and structs registered by batchers, stages, kinds of workers, sources
// and sinks.
//
// Package config must not know the effect of a setting.
package config
