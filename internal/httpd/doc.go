// Package httpd is the HTTP server that REST, WebSocket, the console and the metrics share:
// a Fiber application with rules for every route. It owns the checks of Host and Origin,
// the time-outs, reading a body into leased memory, the format of errors, and the
// shutdown.
//
// It works on plain types and must not know of models, streams or protocols.
// Routes must be registered before Serve is called. Handlers read bodies with
// ReadBody only, since Fiber's own Body and BodyParser have no bound for bodies of unknown
// length. Prefork is not used, since queues and metrics would then exist once per process.
package httpd
