package results

import (
	"cmp"
	"reflect"
	"slices"

	"millrace/internal/setting"
)

// Settings are the settings of a kind of stage: a tagged struct (see internal/setting).
type Settings interface {
	On() bool        // reports whether the stage is on
	Validate() error // checks rules beyond the tags' bounds; unset settings are zero
}

// Phase is the place of a stage in the chain.
type Phase int

// The phases, in the order of processing. Stages of one phase run in the order of the names of their settings' types.
const (
	Compute Phase = iota // computes results from the model's tensors, such as postprocess
	Reuse                // answers frames with earlier results, such as the gate
	Follow               // follows results from frame to frame, such as tracking
	Add                  // adds outputs to the complete results
)

// kind is a kind of stage.
type kind struct {
	phase    Phase
	name     string
	validate func(parts []any) error
	create   func(parts []any, env *Env) (s Stage, on bool, err error)
}

var kinds []kind // in the order of processing

// Register adds a kind of stage with settings S, in a section of every model's configuration. create makes the stage
// of one worker; errors of create name the setting. Register panics for settings already registered. Call Register
// from init.
func Register[S Settings](phase Phase, section string, create func(settings S, env *Env) (Stage, error)) {
	setting.Register[S](setting.Model, section)
	kinds = append(kinds, kind{
		phase: phase, name: reflect.TypeFor[S]().String(),
		validate: func(parts []any) error {
			for _, p := range parts {
				if s, ok := p.(*S); ok {
					return (*s).Validate()
				}
			}
			return nil
		},
		create: func(parts []any, env *Env) (Stage, bool, error) {
			s, _ := setting.Part[S](parts)
			if !s.On() {
				return Stage{}, false, nil
			}
			stage, err := create(s, env)
			return stage, true, err
		},
	})
	sortKinds()
}

// RegisterPlain adds a kind of stage without settings. create returns on if the model gets the stage. Call
// RegisterPlain from init.
func RegisterPlain(phase Phase, name string, create func(env *Env) (s Stage, on bool, err error)) {
	kinds = append(kinds, kind{
		phase: phase, name: name, validate: func([]any) error { return nil },
		create: func(_ []any, env *Env) (Stage, bool, error) { return create(env) },
	})
	sortKinds()
}

func sortKinds() {
	slices.SortStableFunc(kinds, func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.phase, b.phase), cmp.Compare(a.name, b.name))
	})
}

// Validate returns all errors in the settings of stages, except values out of bounds.
func Validate(parts []any) error {
	var errs []error
	for _, k := range kinds {
		errs = append(errs, k.validate(parts))
	}
	return setting.Join(errs...)
}
