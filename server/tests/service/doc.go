// Package service tests what a server offers and tells, in files by topic:
//   - lifecycle: how a server starts, listens, encrypts its listeners, drains and ends.
//   - models: the loading of models, the model repository, declared tensors, ONNX models, and the contract of each kind
//     of worker.
//   - observability: metrics, traces, logs, profiles and the status page.
//   - protocols: what clients may send over REST, WebSocket and gRPC: conformance with the Open Inference Protocol, the
//     description of the routes, and requests that forge names, paths or log lines.
package service
