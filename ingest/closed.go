package ingest

import "millrace/stream"

// ClosedError is what the client of a stream to model is told when the server has closed it for why; nil where that is the
// client's doing, or the end of its connection.
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
