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
	Running    State = "running"    // frames come
	Waiting    State = "waiting"    // it failed, and is opened again after a while
	Ended      State = "ended"      // the video is over, or the source was stopped
	Failed     State = "failed"     // it can never work as it was asked for
)

// States lists every State, for figures by state.
var States = []State{Connecting, Running, Waiting, Ended, Failed}

// Status is a moment's reading of a source.
type Status struct {
	State    State
	Since    time.Time  // of the state
	Restarts uint64     // openings after the first
	Kind     video.Kind // of the last failure; "" for none, or for one that is no *video.Error
	Err      error      // the last failure, without passwords; nil for none
	Retry    time.Time  // when it is opened again; zero unless Waiting
	Frames   uint64     // read, of all openings
	Lost     uint64     // of them, for want of memory
	Info     Info       // of the last opening
}
