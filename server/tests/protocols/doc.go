// Package protocols tests what clients may send over REST, WebSocket and gRPC: conformance with the Open Inference
// Protocol, the description of the routes, and requests that forge names, paths or log lines.
package protocols
