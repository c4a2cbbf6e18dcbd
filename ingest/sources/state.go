package sources

import (
	"time"

	"millrace/internal/video"
)

// State is what a source is doing.
type State string

// The states.
const (
	Connecting State = "connecting" // it is being opened
	Running    State = "running"    // it is being read
	Waiting    State = "waiting"    // it has failed, and will be opened again
	Ended      State = "ended"      // the video is over, or the source was stopped
	Failed     State = "failed"     // it failed and is not opened again
)

// States lists every State, for metrics by state.
var States = []State{Connecting, Running, Waiting, Ended, Failed}

// Status is a snapshot of a source.
type Status struct {
	State    State
	Since    time.Time  // of the state
	Restarts uint64     // openings after the first
	Kind     video.Kind // of the last failure; "" for none, or for one that is not a *video.Error
	Err      error      // the last failure, without passwords; nil for none
	Retry    time.Time  // when it is opened again; zero unless Waiting
	Frames   uint64     // read, of all openings
	Lost     uint64     // those of them that were lost for want of memory
	Info     Info       // of the last opening
}
