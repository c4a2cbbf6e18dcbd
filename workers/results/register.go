package results

import (
	"fmt"
	"reflect"
	"slices"

	"millrace/internal/setting"
)

// Settings are the settings of a kind of stage: a tagged struct (see internal/setting).
type Settings interface {
	On() bool        // reports whether the stage is on
	Validate() error // checks rules beyond the tags' bounds; unset settings are zero
}

// Kind is a kind of stage.
type Kind struct {
	name     string
	register func()
	validate func(parts []any) error
	create   func(parts []any, env *Env) (s Stage, on bool, err error)
}

// NewKind returns a kind of stage with settings S, in a section of every model's configuration. create makes the
// stage of one worker; errors of create name the setting.
func NewKind[S Settings](section string, create func(settings S, env *Env) (Stage, error)) Kind {
	return Kind{
		name:     reflect.TypeFor[S]().String(),
		register: func() { setting.Register[S](setting.Model, section) },
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
	}
}

var kinds []Kind

// Register adds kinds of stages, in the order of processing. Register panics for an already registered kind. Call
// Register from init.
func Register(list ...Kind) {
	for _, k := range list {
		if slices.ContainsFunc(kinds, func(o Kind) bool { return o.name == k.name }) {
			panic(fmt.Sprintf("results: the stage of %s is registered twice", k.name))
		}
		k.register()
		kinds = append(kinds, k)
	}
}

// Validate returns all errors in the settings of stages, except values out of bounds.
func Validate(parts []any) error {
	var errs []error
	for _, k := range kinds {
		errs = append(errs, k.validate(parts))
	}
	return setting.Join(errs...)
}
