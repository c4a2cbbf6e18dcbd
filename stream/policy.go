package stream

import (
	"cmp"
	"time"
)

// Mode says what happens to frames when there are more of them than compute.
type Mode string

// The modes.
const (
	// Latest keeps the newest frame only: live input.
	Latest Mode = "latest"
	// Every drops nothing: files and one-shot requests.
	Every Mode = "every"
)

// Policy is what a stream wants of freshness and flow. The zero value of a
// field means "the model's default", filled in by WithDefaults.
type Policy struct {
	Mode     Mode
	MaxAge   time.Duration // a frame that would be answered older than this is dropped as stale
	Deadline time.Duration // as MaxAge, but set for each frame; the shorter one counts
	MaxFPS   float64       // frames that come sooner are dropped; 0 = no limit
	Window   int           // frames accepted and not yet ended at once, in Every; advertised credits in Latest
	Priority Priority
}

// Priority orders the rings of a group. Waiting frames of a higher priority are
// taken first, with a share kept for the lower ones.
type Priority uint8

// The priorities.
const (
	Normal Priority = iota
	High
	Low
	Priorities = 3
)

// Bounds of a policy.
const (
	DefaultWindowLatest = 2
	DefaultWindowEvery  = 16
	MaxWindow           = 1024
)

// WithDefaults fills p's unset fields from d, then from the defaults of the mode.
func (p Policy) WithDefaults(d Policy) Policy {
	if p.Mode == "" {
		p.Mode = d.Mode
	}
	if p.Mode == "" {
		p.Mode = Latest
	}
	if p.MaxAge == 0 {
		p.MaxAge = d.MaxAge
	}
	if p.Deadline == 0 {
		p.Deadline = d.Deadline
	}
	if p.MaxFPS == 0 {
		p.MaxFPS = d.MaxFPS
	}
	if p.Window == 0 && p.Mode == cmp.Or(d.Mode, p.Mode) { // the window of one mode is no default for the other
		p.Window = d.Window
	}
	if p.Window == 0 {
		p.Window = DefaultWindowLatest
		if p.Mode == Every {
			p.Window = DefaultWindowEvery
		}
	}
	return p
}

// Validate names the first field that is out of bounds.
func (p Policy) Validate() error {
	switch {
	case p.Mode != "" && p.Mode != Latest && p.Mode != Every:
		return Errorf(InvalidArgument, "policy", "%q is not a policy: want latest or every", string(p.Mode))
	case p.MaxAge < 0:
		return Errorf(InvalidArgument, "max_age_ms", "is negative")
	case p.Deadline < 0:
		return Errorf(InvalidArgument, "deadline_ms", "is negative")
	case p.MaxFPS != 0 && !(p.MaxFPS >= 0.001 && p.MaxFPS <= 1e6):
		return Errorf(InvalidArgument, "max_fps", "%v is neither 0 nor between 0.001 and 1000000", p.MaxFPS)
	case p.Window < 0 || p.Window > MaxWindow:
		return Errorf(InvalidArgument, "window", "%d is not between 1 and %d", p.Window, MaxWindow)
	case p.Priority >= Priorities:
		return Errorf(InvalidArgument, "priority", "%d is not a priority", p.Priority)
	}
	return nil
}
