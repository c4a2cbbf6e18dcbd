package sources

import (
	"time"

	"millrace/internal/video"
)

// State is the activity of a source.
type State string

// The states.
const (
	Connecting State = "connecting" // being opened
	Running    State = "running"    // being read
	Waiting    State = "waiting"    // failed, waiting for the next opening
	Ended      State = "ended"      // the video is over, or the source was stopped
	Failed     State = "failed"     // failed finally
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
	Retry    time.Time  // time of the next opening; zero unless Waiting
	Frames   uint64     // read, of all openings
	Lost     uint64     // frames lost for lack of memory, included in Frames
	Skipped  uint64     // pictures of a video with decode reference or key that became no frame
	Info     Info       // of the last opening
}
