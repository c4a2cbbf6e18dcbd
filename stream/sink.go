package stream

// Sink writes the endings of one stream's frames to the stream's client. The adapter implements Sink.
//
// Push and Done are called with the stream's lock held, in the stream's order: the sink must not block and must not
// call the stream. Push passes on ownership of the result: the sink releases the result. Done is called once, as the
// last call.
type Sink interface {
	Push(r *Result)
	Done(reason CloseReason)
}

// Continuer is a Sink that continues with other streams after endings: Continue is called after one or several calls
// of Push and Done, without the stream's lock. The goroutine that ended the frames calls Continue, perhaps a worker
// that holds its group's lock for gathering: Continue must not block.
type Continuer interface {
	Sink
	Continue()
}

// Pacer is a Sink with a bound on the partial results waiting for the client.
type Pacer interface {
	Sink
	// WaitForRoom is called before each partial result is pushed, without the stream's lock. WaitForRoom may wait until
	// the client has taken earlier results. An error ends the frame.
	WaitForRoom() error
}
