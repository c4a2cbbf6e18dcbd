package stream

// Sink writes the endings of one stream's frames to where they came from. The
// adapter implements it.
//
// Push and Done are called with the stream's lock held, in the stream's order:
// they must not block and must not call the stream. Push hands the result over:
// the sink releases it. Done is the last call and comes once.
type Sink interface {
	Push(r *Result)
	Done(reason CloseReason)
}

// Endpoint is what a stream feeds: a worker group. Its methods are called with
// the stream's lock held and must not block or call the stream.
type Endpoint interface {
	// Enqueue puts the stream's token into the queue; affinity is the worker that
	// has the stream's state (Stream.SetAffinity), or nil. The place was reserved
	// when the stream was attached, so it cannot fail.
	Enqueue(s *Stream, affinity any)
	// Waiting tells that n more frames wait (fewer when n < 0), or with 0 that the
	// stream ended while its token is queued.
	Waiting(n int)
	// Ended tells of the one ending of an accepted frame.
	Ended(r *Request)
	// Detach gives the stream's place back: it has ended and its token is not
	// queued.
	Detach(s *Stream)
}
