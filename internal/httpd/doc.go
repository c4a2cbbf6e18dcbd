// Package httpd is the one HTTP listener that REST, WebSocket, the console and
// the metrics share: a Fiber application behind rules that hold for every
// route. It owns who may ask (Host and Origin), how long a client may take, how
// a body is read into leased memory, what an error looks like, and an orderly
// end.
//
// It works on plain types and must not know of models, streams or protocols.
// Routes must be registered before Serve is called. Handlers read bodies with
// ReadBody only: Fiber's own Body and BodyParser have no bound for bodies of
// unknown length. Prefork is never used: it would split queues and metrics.
package httpd
