package ingest

import "millrace/stream"

// What adapters answer before and after they serve.
var (
	ErrStarting error = stream.Errorf(stream.Unavailable, "", "the server is starting")
	ErrDraining error = stream.Errorf(stream.Draining, "", "the server is shutting down")
)
