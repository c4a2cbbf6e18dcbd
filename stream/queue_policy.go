package stream

import "time"

// QueuePolicy limits how many frames of a model wait for a worker, and for how long. The time-out limits a frame's
// wait alone; a deadline limits the time to the answer. Must-process frames (Frame.Must) have no time-out.
type QueuePolicy struct {
	MaxSize int           `yaml:"max_size" unset:"no bound but max_flows and the streams' windows" min:"1" max:"16777216" advanced:"yes" help:"most frames that wait for a worker; a further frame ends with the error overloaded"`
	Timeout time.Duration `yaml:"timeout" unset:"no bound but the deadlines of frames" min:"1us" max:"1h" advanced:"yes" example:"100ms" help:"longest time that a frame waits for a worker; see timeout_action"`
	// Action is the treatment of a frame at the end of its time-out.
	Action               TimeoutAction `yaml:"timeout_action" default:"reject" words:"reject delay" advanced:"yes" help:"reject = a frame ends at queue.timeout; delay = the frame waits on, behind all other frames (streams with policy latest reject)"`
	AllowTimeoutOverride *bool         `yaml:"allow_timeout_override" default:"true" advanced:"yes" help:"let a request set a timeout; the shorter timeout applies. false: a request with a timeout is refused"`
}

// TimeoutAction is the treatment of a frame at its queue time-out.
type TimeoutAction string

// The actions.
const (
	Reject TimeoutAction = "reject"
	Delay  TimeoutAction = "delay"
)

// setQueueTimeout sets the time-out of r from r's own or the model's time-out.
func (s *Stream) setQueueTimeout(r *Request) error {
	q := &s.model.Queue
	switch {
	case r.Must:
		r.QueueTimeout = 0
	case r.QueueTimeout < 0:
		return Errorf(InvalidArgument, "timeout", "%v is negative: want a time in microseconds", r.QueueTimeout)
	case r.QueueTimeout == 0:
		r.QueueTimeout = q.Timeout
	case q.AllowTimeoutOverride != nil && !*q.AllowTimeoutOverride:
		return Errorf(InvalidArgument, "timeout", "requests to model %s have no time-out of their own (its "+
			"queue.allow_timeout_override is false): leave it out", s.model.Name)
	case q.Timeout > 0:
		r.QueueTimeout = min(r.QueueTimeout, q.Timeout)
	}
	return nil
}

// delays reports whether frames keep waiting after their queue time-out. In Latest, where only the newest frame
// waits, frames do not.
func (s *Stream) delays() bool { return s.model.Queue.Action == Delay && s.policy.Mode == Every }

// queueEnd returns when r's queue time-out ends; 0 = never.
func (r *Request) queueEnd() Instant {
	end := r.Timing.Received.Add(r.QueueTimeout)
	if end <= r.Timing.Received { // no time-out, or too long for the clock
		return 0
	}
	return end
}

// queueError returns the error for a request that exceeded its queue time-out.
func (r *Request) queueError() error {
	m := r.Stream.model
	if t := m.Queue.Timeout; t > 0 && r.QueueTimeout >= t {
		return Errorf(Overloaded, "queue.timeout",
			"model %s had no worker for the request within %v: try later, or raise the setting", m.Name, r.QueueTimeout)
	}
	return Errorf(Overloaded, "timeout", "model %s had no worker for the request within its time-out of %v: try "+
		"later, or with a longer one", m.Name, r.QueueTimeout)
}
