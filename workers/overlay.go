package workers

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"millrace/batching"
	"millrace/internal/setting"
	"millrace/stream"
)

// loadOptions are the parameters of a load request beside the settings of the model.
type loadOptions struct {
	Share *bool `yaml:"share" default:"true" request:"any" help:"when the endpoint exists already: true = use its workers; false = add a worker"`
	Swap  bool  `yaml:"swap" request:"any" help:"replace the endpoint of this name; its streams stay open"`
}

// Overlay applies load parameters to a configuration: the model's settings open to requests, parameters of the kind
// of worker, free parameters for kinds with Kind.ExtraParams, share and swap. The error lists all mistakes. The memory
// of the batches bounds their size, see Group.
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
	for name, value := range params { // first: settings of other batchers do not stay
		if f, ok := t.FindRequest(name); ok && f.Path == "batching.kind" && f.SetRequest(value) == nil {
			out.Parts = batching.PartsOf(string(out.Batching.Kind), out.Parts)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		f, isModel := t.FindRequest(name)
		if !isModel {
			if _, isList := of.FindList(name); isList {
				hint := ""
				if name == kind.ExtraParams {
					hint = "; a load names each of them itself, such as threshold=250"
				}
				errs = append(errs, stream.Errorf(stream.InvalidArgument, name,
					"can only be set in the server's configuration%s", hint))
				continue
			}
			var isKind bool
			if f, isKind = of.Find(name); !isKind {
				var err error
				if merged, err = kind.addUndeclaredParam(merged, name, params[name], t, of); err != nil {
					errs = append(errs, err)
				}
				continue
			}
			if merged == nil {
				merged = stream.Params{}
			}
			merged[name] = params[name]
		}
		errs = append(errs, f.SetRequest(params[name]))
	}
	errs = append(errs, batching.CheckParts(string(out.Batching.Kind), out.Parts))
	out.Params = merged
	return out, *opts.Share, opts.Swap, setting.Join(errs...)
}

// addUndeclaredParam returns params with a load parameter declared neither by the model nor by the kind. A name that
// resembles a declared name, or is a path, is refused as a mistake.
func (k Kind) addUndeclaredParam(params stream.Params, name string, value any,
	model, own *setting.Table) (stream.Params, error) {
	if k.ExtraParams == "" || strings.ContainsAny(name, ".=") || name == "" ||
		setting.Resembles(name, append(model.Below(""), own.Below("")...)) {
		return params, k.unknown(name, own, requestable(model)...)
	}
	var list []string
	if text, ok := params[k.ExtraParams].(string); ok {
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return params, stream.Errorf(stream.InvalidArgument, k.ExtraParams, "is not the JSON text of a list: %w",
				err)
		}
	}
	plain, err := json.Marshal(value)
	if err != nil {
		return params, stream.Errorf(stream.InvalidArgument, name, "has a value that JSON cannot have: %w", err)
	}
	list = append(slices.DeleteFunc(list, func(v string) bool {
		return strings.HasPrefix(v, name+"=")
	}), name+"="+string(plain))
	text, err := json.Marshal(list)
	if err != nil {
		return params, stream.Errorf(stream.Internal, name, "%w", err)
	}
	if params == nil {
		params = stream.Params{}
	}
	params[k.ExtraParams] = string(text)
	return params, nil
}

// requestable returns the settings that a request may set.
func requestable(t *setting.Table) (paths []string) {
	for _, f := range t.Fields() {
		if f.Request != "" {
			paths = append(paths, f.Path)
		}
	}
	slices.Sort(paths)
	return paths
}

// mayRequestWorkers reports whether a request may ask for n workers of a model.
func mayRequestWorkers(cfg Config, n int) bool { return CheckRequested(cfg, n) == nil }

// CheckRequested returns an error when a request may not set so many workers for a model.
func CheckRequested(cfg Config, n int) error {
	f, _ := setting.TableOf("", &cfg).Find("instances")
	return f.SetRequest(int64(n))
}
