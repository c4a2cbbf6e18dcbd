package ingest

import "millrace/stream"

// Errors for requests before an adapter serves and after its end.
var (
	ErrStarting error = stream.Errorf(stream.Unavailable, "", "the server is starting")
	ErrDraining error = stream.Errorf(stream.Draining, "", "the server is shutting down")
)
