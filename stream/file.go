package stream

import "io"

// FileRun is one run of a model that takes files (Model.Files): the model reads the input and writes one result, both
// of any size and neither in memory as a whole.
type FileRun struct {
	ID    string // of the run: no other run has the id. Letters, digits and dashes
	Name  string // of the client's file; "" = it has none
	Type  string // media type of the input; "" = unknown
	Size  int64  // of the input
	Input io.ReaderAt
	Log   io.Writer // gets what the model writes for people; nil = nobody reads the log
	// Progress shows how far the run is, in a unit such as frames; total 0 = unknown. nil = nobody reads the progress.
	Progress func(done, total int64, unit string)
	// Create begins the result. The model calls Create at most once, and only when it has a result.
	Create func(name, mediaType string) (io.Writer, error)
}
