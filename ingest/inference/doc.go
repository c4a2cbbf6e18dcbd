// Package inference makes frames of inference requests of the Open Inference Protocol,
// and replies of their results, for every adapter that speaks it. An adapter decodes
// its messages into oip.InferRequest and encodes oip.InferResponse; what the messages
// mean is decided here. It must not know connections, headers or encodings.
package inference
