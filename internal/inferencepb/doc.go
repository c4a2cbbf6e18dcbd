// Package inferencepb has the messages and the service of the gRPC form of the Open Inference Protocol, with the
// extensions of Triton Inference Server. REST answers the messages of model configuration and statistics as JSON, and
// config.pbtxt is read into such a message. The package must not know the use of its messages.
package inferencepb

//go:generate go run ./generate
