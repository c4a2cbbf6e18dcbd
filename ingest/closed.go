package ingest

import "millrace/stream"

// ClosedError is the error for the client of a stream to model after the server closed the stream for why; nil when
// the client closed the stream or its connection ended.
func ClosedError(why stream.CloseReason, model string) error {
	switch why {
	case stream.ByUnload:
		return stream.Errorf(stream.Unloaded, "", "model %s was unloaded", model)
	case stream.ByDrain:
		return ErrDraining
	case stream.Idle:
		return stream.Errorf(stream.Timeout, "", "nothing was sent for too long")
	case stream.ByError:
		return stream.Errorf(stream.Internal, "", "the stream to model %s failed", model)
	}
	return nil
}
