package workers_test

import (
	"fmt"
	"strings"
	"testing"

	"millrace/workers"
)

// A kind with a setting that every model or every load request already has is refused, and the error has both names.
func TestRegisterRefusesNamesOfModels(t *testing.T) {
	for name, settings := range map[string]any{
		"version": new(struct {
			V int `yaml:"version" help:"x"`
		}),
		"share": new(struct {
			V int `yaml:"share" help:"x"`
		}),
		"batch_size": new(struct {
			V int `yaml:"batch_size" help:"x"`
		}),
		"limits": new(struct {
			Limits struct {
				Other int `yaml:"other" help:"x"`
			} `yaml:"limits"`
		}),
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, `kind "new"`) ||
					!strings.Contains(text, "the setting "+name) {
					t.Errorf("%s: %s", name, text)
				}
			}()
			workers.Register(workers.Kind{Name: "new", New: func() workers.Worker {
				return nil
			}, Settings: func() any { return settings }})
		}()
	}
	if _, there := workers.Lookup("new"); there {
		t.Error("it is registered")
	}
}
