package stream

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millrace/internal/setting"
)

// Mode determines the treatment of frames when the model cannot run all frames.
type Mode string

// The modes.
const (
	// Latest keeps the newest frame only: live input.
	Latest Mode = "latest"
	// Every drops nothing: for files and one-shot requests.
	Every Mode = "every"
)

// Policy determines what a stream does with more frames than the model can run. The zero value of a field means "the
// model's default", filled in by WithDefaults.
type Policy struct {
	Mode     Mode          `yaml:"policy" unset:"latest" words:"latest every" help:"latest = answer the newest frame and drop older frames that wait; every = answer every frame"`
	MaxAge   time.Duration `yaml:"max_age_ms" unit:"ms" max:"3600000" advanced:"yes" example:"500" help:"drop a frame that would be older than this when answered"`
	Deadline time.Duration `yaml:"deadline_ms" unit:"ms" max:"3600000" advanced:"yes" example:"500" help:"as max_age_ms, but a frame may set its own deadline; the shorter time applies"`
	MaxFPS   float64       `yaml:"max_fps" min:"0.001" max:"1e6" example:"10" help:"drop frames beyond this rate"`
	Window   int           `yaml:"window" min:"1" max:"1024" advanced:"yes" help:"most frames in flight"` // in Latest: the credit that clients are told
	Priority Priority      `yaml:"priority" advanced:"yes" help:"priority of the stream's frames in the queue"`
}

// Priority selects the ring of a group in which a stream's token waits. Frames of a higher priority are taken first,
// with a share kept for lower priorities.
type Priority uint8

// The priorities, with the numbers of the Open Inference Protocol: see PriorityOf.
const (
	DefaultPriority Priority = iota // the model's priority, Normal unless configured
	High
	Normal
	Low
	// Delayed is a priority of tokens only: the next frame has exceeded its queue time-out, in a model that delays
	// such frames. Tokens of all other priorities are served first.
	Delayed
	Priorities = 5 // array length for an index by Priority
)

var priorities = [...]string{"default", "high", "normal", "low"}

// PriorityOf returns the priority for a number in a request of the Open Inference Protocol: 0 is the model's default,
// 1 high, 2 normal, and larger numbers are low.
func PriorityOf(n uint64) Priority { return Priority(min(n, uint64(Low))) }

// String returns the name of the priority.
func (p Priority) String() string {
	if int(p) < len(priorities) {
		return priorities[p]
	}
	return fmt.Sprintf("Priority(%d)", p)
}

// Words returns the names of the priorities.
func (Priority) Words() []string { return []string{"normal", "high", "low"} }

// MarshalText implements encoding.TextMarshaler.
func (p Priority) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the name of a priority.
func (p *Priority) UnmarshalText(text []byte) error {
	i := slices.Index(priorities[:], string(text))
	if i <= 0 {
		return fmt.Errorf("%.40q is not a priority: want normal, high or low", text)
	}
	*p = Priority(i)
	return nil
}

// Bounds of a policy.
const (
	DefaultWindowLatest = 2
	DefaultWindowEvery  = 16
	MaxWindow           = 1024
)

// WithDefaults sets p's unset fields from d, then from the defaults of the mode.
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
	if p.Priority == DefaultPriority {
		p.Priority = cmp.Or(d.Priority, Normal)
	}
	if p.Window == 0 && p.Mode == cmp.Or(d.Mode, p.Mode) { // a window of one mode is no default for the other mode
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

// Validate returns an error that lists every field out of bounds.
func (p Policy) Validate() error {
	if p == (Policy{Mode: Every, Window: 1}) {
		return nil // policy of one-shot requests: checking the tags takes longer than opening the stream
	}
	return p.check()
}

// check is a separate function because it moves p to the heap.
//
//go:noinline
func (p Policy) check() error { return setting.Join(setting.TableOf("", &p).Check()...) }
