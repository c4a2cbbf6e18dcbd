package server

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"millrace/batching"
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/workers"
)

// validate says the first thing that is wrong with a model; at is its path.
func (m ModelConfig) validate(at string) error {
	if !goodName(m.Name) {
		return fault(at+".name", "%q is no name: want 1 to 128 letters, digits, dots, dashes or underscores", m.Name)
	}
	w, err := m.Worker()
	if err == nil {
		err = m.checkParams(w.Kind)
	}
	if err == nil {
		err = checkImage(w.Image)
	}
	if err == nil && w.Batching.Memory != batching.Heap && w.Batching.Memory != batching.C {
		err = fault("batching.memory", "%q is not a backend: want heap or c", string(w.Batching.Memory))
	}
	if err == nil {
		err = w.Validate()
	}
	var e *stream.Error
	if !errors.As(err, &e) {
		return err
	}
	field := e.Field
	switch field {
	case "policy", "max_age_ms", "deadline_ms", "max_fps", "window", "priority":
		field = "stream." + field
	}
	return &stream.Error{Code: e.Code, Field: strings.TrimSuffix(at+"."+field, "."), Msg: e.Msg, Err: e.Err}
}

// goodName keeps names out of trouble in paths, labels and file names.
func goodName(s string) bool {
	if s == "" || len(s) > 128 || s[0] == '.' || s[0] == '-' {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) < 0
}

// checkParams refuses the first key that is neither the model's nor its
// worker's.
func (m ModelConfig) checkParams(kind string) error {
	k, _ := workers.Lookup(kind)
	for _, name := range slices.Sorted(maps.Keys(m.Params)) {
		own := k.Table().Below("")
		if slices.Contains(own, name) {
			continue
		}
		hint := suggest(name, slices.Concat(own, paths(modelKeys), below(paths(modelKeys), "")))
		if hint == "" {
			hint = ": it has no parameters"
			if len(own) > 0 {
				hint = ": it has " + strings.Join(own, ", ")
			}
		}
		return fault(name, "is neither a setting of a model nor a parameter of %s%s", kind, hint)
	}
	return nil
}

func checkImage(s *stream.ImageSpec) error {
	if s == nil {
		return nil
	}
	const at = "input.image."
	var (
		color  codec.Color
		layout codec.Layout
	)
	switch {
	case s.Width < 0 || s.Width > 1<<14:
		return fault(at+"width", "%d is not between 1 and %d pixels (left out: the model's)", s.Width, 1<<14)
	case s.Height < 0 || s.Height > 1<<14:
		return fault(at+"height", "%d is not between 1 and %d pixels (left out: the model's)", s.Height, 1<<14)
	case s.Color != "" && color.UnmarshalText([]byte(s.Color)) != nil:
		return fault(at+"color", "%q is not known: want RGB, BGR or GRAY", s.Color)
	case s.Layout != "" && layout.UnmarshalText([]byte(s.Layout)) != nil:
		return fault(at+"layout", "%q is not known: want NHWC or NCHW", s.Layout)
	case s.Fit != "" && s.Fit != "stretch" && s.Fit != "letterbox":
		return fault(at+"fit", "%q is not known: want stretch or letterbox", s.Fit)
	}
	for _, v := range s.Std {
		if v == 0 && s.Std != [3]float32{} {
			return fault(at+"std", "%v holds a 0, which nothing can be divided by", s.Std)
		}
	}
	return nil
}
