package workers

import (
	"maps"
	"slices"

	"millrace/internal/setting"
	"millrace/stream"
)

// loadOptions are what a load request says beside the settings of the model.
type loadOptions struct {
	Share *bool `yaml:"share" default:"true" request:"any" help:"use the workers that there are; false: add one"`
	Swap  bool  `yaml:"swap" request:"any" help:"replace the endpoint of that name; its streams stay open"`
}

// Overlay lays load parameters over a configuration: settings of the model as far as
// a request may set them, parameters of the kind of worker, share and swap. Errors
// name all that are wrong. Batches are bounded by the memory that they take, see
// Group.
func Overlay(cfg Config, params stream.Params) (out Config, share, swap bool, err error) {
	out = cfg.WithDefaults()
	var opts loadOptions
	setting.Fill(&opts)
	t := out.Table()
	t.Add("", &opts)
	kind, _ := Lookup(out.Kind)
	own, _ := kind.Decode(cfg.Params)
	of := kind.table(own)
	merged := maps.Clone(cfg.Params)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(params)) {
		f, isModel := t.FindRequest(name)
		if !isModel {
			var isKind bool
			if f, isKind = of.Find(name); !isKind {
				errs = append(errs, kind.unknown(name, of))
				continue
			}
			if merged == nil {
				merged = stream.Params{}
			}
			merged[name] = params[name]
		}
		errs = append(errs, f.SetRequest(params[name]))
	}
	out.Params = merged
	return out, *opts.Share, opts.Swap, setting.Join(errs...)
}

// mayAsk says whether a request may ask for n workers of a model.
func mayAsk(cfg Config, n int) bool {
	f, _ := setting.Of("", &cfg).Find("instances")
	return f.SetRequest(int64(n)) == nil
}
