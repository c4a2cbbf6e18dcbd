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
