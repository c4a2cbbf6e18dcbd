// Package inference turns inference requests of the Open Inference Protocol into frames, and results into replies,
// for every adapter with this protocol. An adapter decodes its messages into oip.InferRequest and encodes
// oip.InferResponse; package inference decides the meaning of the messages. The package must not know connections,
// headers or encodings.
package inference
