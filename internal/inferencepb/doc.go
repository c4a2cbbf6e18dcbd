// Package inferencepb has the messages and the service of the gRPC form of the Open
// Inference Protocol, with the extensions of Triton Inference Server. Its messages of model
// configuration and statistics are also what REST answers as JSON and what config.pbtxt is
// read into. It must not know what is done with them.
package inferencepb

//go:generate go run ./generate
