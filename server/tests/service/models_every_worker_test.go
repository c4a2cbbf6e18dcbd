package service_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"millrace/batching"
	"millrace/config"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// kinds are the server's kinds of workers, without the tests' kinds.
func kinds() []workers.Kind {
	return slices.DeleteFunc(workers.Kinds(), func(k workers.Kind) bool {
		in := reflect.Indirect(reflect.ValueOf(k.New())).Type().PkgPath()
		return strings.HasSuffix(in, "_test") || strings.HasSuffix(in, "/servertest")
	})
}

// Every kind of worker meets the contract of Kind and Worker: its own settings, with defaults and checks; and no
// leftovers after its end, for any batch.
func TestEveryWorker(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.Name, func(t *testing.T) {
			if k.Doc == "" {
				t.Error("is not described")
			}
			if k.Uses != nil {
				t.Skip("runs other models: its package tests its life")
			}
			settings, err := k.Decode(nil)
			if err != nil {
				t.Fatal(err)
			}
			if k.Settings != nil {
				if k.Settings() == k.Settings() {
					t.Error("two instances share their settings")
				}
				for _, f := range setting.TableOf("", settings).Fields() {
					if f.Default != "" && f.String() == "" {
						t.Errorf("%s is not filled in", f.Path)
					}
					var e *stream.Error
					if _, err := k.Decode(stream.Params{f.Path: map[string]any{}}); !errors.As(err, &e) ||
						e.Field != f.Path {
						t.Errorf("%s: %v for no plain value", f.Path, err)
					}
				}
			}
			if _, err := k.Decode(stream.Params{"no_such_setting": 1}); stream.CodeOf(err) != stream.InvalidArgument {
				t.Errorf("a setting that there is not: %v", err)
			}
			if k.Loads != nil {
				return // needs a file to load
			}
			w := k.New()
			if _, err := w.Init(t.Context(), &workers.Env{Name: "m", Settings: settings}); err != nil {
				t.Fatal(err)
			}
			if err := w.Allocate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := w.Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := w.Run(t.Context(), &batching.Batch{}); err != nil {
				t.Errorf("a batch of nothing: %v", err)
			}
			w.Release()
			w.Deallocate()
			w.Destroy()
		})
	}
}

// Every kind of worker accepts every setting of a stage, or refuses the setting by name: no kind panics, and the
// model's description of its outputs is complete.
func TestEveryStage(t *testing.T) {
	for _, k := range kinds() {
		if k.Loads != nil {
			continue
		}
		for _, s := range config.ModelSettings() {
			section, _, sectioned := strings.Cut(s.Path, ".")
			if !sectioned || slices.Contains([]string{"batching", "limits", "stream", "window"}, section) {
				continue // of no stage
			}
			for _, value := range []string{s.Example, "true", "2", "0.25", "boxes"} {
				cfg, err := config.ParseModel("m=" + k.Name + "," + s.Path + "=" + value)
				if err != nil || value == "" {
					continue
				}
				mem := buf.NewPool(0)
				m := workers.NewManager(workers.ManagerOptions{Memory: mem})
				_, err = m.LoadConfig(t.Context(), cfg, true)
				var e *stream.Error
				if err != nil && (!errors.As(err, &e) || e.Field == "" || e.Code == stream.Internal) {
					t.Errorf("%s, %s=%s: %v", k.Name, s.Path, value, err)
				}
				if g, err := m.Group("m", ""); err == nil {
					for _, o := range g.Model().Outputs {
						if o.Name == "" || o.Datatype == "" {
							t.Errorf("%s, %s=%s: an output without name or type: %+v", k.Name, s.Path, value, o)
						}
					}
				}
				if err := m.Close(context.Background()); err != nil {
					t.Error(err)
				}
				if n := mem.Stats().Leases; n != 0 {
					t.Errorf("%s, %s=%s: %d leases left", k.Name, s.Path, value, n)
				}
			}
		}
	}
}
