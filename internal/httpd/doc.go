// Package httpd is the HTTP server shared by REST, WebSocket, the console and the metrics: a Fiber application with
// rules for every route. The package owns the checks of Host and Origin, the time-outs, reading a body into leased
// memory, the format of errors, and the shutdown.
//
// The package works on plain types and must not know models, streams or protocols. Routes must be registered before
// Serve is called. Handlers read bodies with ReadBody only, since Fiber's own Body and BodyParser do not bound bodies
// of unknown length. Prefork is not used, because each process would then have its own queues and metrics.
package httpd
