package stream

// Sink writes the endings of one stream's frames to the stream's client. The adapter
// implements it.
//
// Push and Done are called with the stream's lock held, in the stream's order: they
// must not block and must not call the stream. Push hands the result over: the sink
// releases it. Done is called once, as the last call.
type Sink interface {
	Push(r *Result)
	Done(reason CloseReason)
}

// Continuer is a Sink that goes on with other streams after its endings: Continue is
// called after Push and Done, once for one or several of them, when the stream's lock is
// released. It is called by the goroutine that ended the frames, which may be a worker's
// and may hold its group's lock for gathering: it must not block.
type Continuer interface {
	Sink
	Continue()
}

// Pacer is a Sink that bounds the partial results that wait for its client.
type Pacer interface {
	Sink
	// Room is called before each partial result is pushed, without the stream's lock. It
	// may wait until the client has taken earlier ones. An error ends the frame.
	Room() error
}
