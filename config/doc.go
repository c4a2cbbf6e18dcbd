// Package config puts together all that can be set: a file, variables, flags and
// --model lists. What a setting is called, what it may be and what it is when it is
// left out stands in the tags of the struct that it configures (internal/setting):
// Config here, workers.Config for a model, streams.Config for a stream, and the structs that
// batchers, stages, kinds of workers, sources and sinks register.
//
// It must not know what is done with a setting.
package config
