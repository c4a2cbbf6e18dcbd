package workers

import (
	"slices"
	"time"

	"millrace/batching"
	"millrace/internal/setting"
	"millrace/stream"
)

// What a request may ask for: as much as the model's configuration says, and up to
// these in any case.
const (
	MaxInstances = 64
	MaxDelay     = time.Minute
	MaxRun       = 10 * time.Minute
)

// Overlay lays load parameters over a configuration. It knows instances, share,
// swap, max_size (or batch_size), batcher, max_delay and the same with
// "batching." in front, and limits.run; the others are the worker's. Batches are
// bounded by the memory that they take, see Group.
func Overlay(cfg Config, params stream.Params) (out Config, share, swap bool, err error) {
	share = true
	set := cfg.WithDefaults()
	own := stream.Params{}
	for k, v := range cfg.Params {
		own[k] = v
	}
	for k, v := range params {
		switch k {
		case "share":
			share, err = boolean(k, v)
		case "swap":
			swap, err = boolean(k, v)
		case "instances":
			if cfg.Instances, err = integer(k, v); err == nil {
				err = atMost(k, cfg.Instances, max(MaxInstances, set.Instances))
			}
		case "max_size", "batch_size", "batching.max_size":
			cfg.Batching.MaxSize, err = integer(k, v)
		case "batcher", "batching.kind":
			var s string
			s, err = text(k, v)
			cfg.Batching.Kind = s
		case "max_delay", "batching.max_delay":
			var d time.Duration
			if d, err = duration(k, v); err == nil {
				soft, _ := setting.Part[batching.SoftSettings](cfg.Parts)
				err = atMost(k, d, max(MaxDelay, soft.MaxDelay))
				cfg.Parts = append(withoutSoft(cfg.Parts), &batching.SoftSettings{MaxDelay: d})
			}
		case "limits.run":
			if cfg.Limits.Run, err = duration(k, v); err == nil {
				err = atMost(k, cfg.Limits.Run, max(MaxRun, set.Limits.Run))
			}
		default:
			own[k] = v
		}
		if err != nil {
			return cfg, false, false, err
		}
	}
	if len(own) > 0 {
		cfg.Params = own
	}
	return cfg, share, swap, nil
}

func withoutSoft(parts []any) []any {
	return slices.DeleteFunc(slices.Clone(parts), func(p any) bool { _, ok := p.(*batching.SoftSettings); return ok })
}

func atMost[T int | time.Duration](key string, v, most T) error {
	if v > most {
		return stream.Errorf(stream.InvalidArgument, key, "%v is more than the %v that a request may ask for: only the configuration of the model can set it", v, most)
	}
	return nil
}

func boolean(key string, v any) (bool, error) {
	switch v := v.(type) {
	case bool:
		return v, nil
	case string:
		if v == "true" || v == "false" {
			return v == "true", nil
		}
	}
	return false, stream.Errorf(stream.InvalidArgument, key, "%v is not true or false", v)
}

func integer(key string, v any) (int, error) {
	switch v := v.(type) {
	case int64:
		return int(v), nil
	case float64:
		if v == float64(int(v)) {
			return int(v), nil
		}
	}
	return 0, stream.Errorf(stream.InvalidArgument, key, "%v is not a whole number", v)
}

func text(key string, v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	return "", stream.Errorf(stream.InvalidArgument, key, "%v is not a string", v)
}

func duration(key string, v any) (time.Duration, error) {
	if s, ok := v.(string); ok {
		if d, err := time.ParseDuration(s); err == nil {
			return d, nil
		}
	}
	return 0, stream.Errorf(stream.InvalidArgument, key, "%v is not a duration such as \"5ms\"", v)
}
