package graph

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/workers"
)

// Settings are the parameters of a graph.
type Settings struct {
	Steps   []Step   `yaml:"steps" help:"the models of the graph, in any order; a step runs when all inputs of the step are ready"`
	Outputs []string `yaml:"outputs" unset:"the outputs of all steps" advanced:"yes" help:"names of the tensors that the graph answers with"`
	Frames  int      `yaml:"frames" unset:"as many as the batches of the steps' workers have rows" min:"1" max:"4096" advanced:"yes" help:"most frames in the graph at once, per instance"`
}

// maxSteps is the largest number of steps.
const maxSteps = 64

// Step is one step of a graph.
type Step struct {
	Name    string            `yaml:"name" form:"name" unset:"the model's" advanced:"yes" help:"name of the step, in errors and metrics"`
	Model   string            `yaml:"model" form:"name" help:"the endpoint that the step runs"`
	Version string            `yaml:"version" unset:"any" advanced:"yes" help:"version of the model"`
	Input   map[string]string `yaml:"input" unset:"the tensor of the input's own name" help:"the tensor for an input of the model: an input of the graph, or an output of another step"`
	Output  map[string]string `yaml:"output" unset:"all outputs, by their own names" help:"name of the tensor for an output of the model; outputs without a name are left out"`
	When    Condition         `yaml:"when" unset:"always" example:"count(boxes) > 0" advanced:"yes" help:"run the step only if this holds: count, max, min or sum of a tensor compared with a number, such as count(boxes) > 0"`
	Timeout time.Duration     `yaml:"timeout" unset:"none but the model's limits.run" min:"1ms" advanced:"yes" help:"longest time of the step, waiting in the model's queue included"`
	// Endpoint is the Call.Endpoint of the step's frames.
	Endpoint string `yaml:"endpoint" unset:"that of the request's route" advanced:"yes" help:"name of the route in requests to the step's program"`
	Crop     *Crop  `yaml:"crop"`
}

// Crop makes a step run once for each box of a frame, on the box's part of the picture.
type Crop struct {
	Boxes   string  `yaml:"boxes" example:"boxes" advanced:"yes" help:"tensor of boxes, x1 y1 x2 y2 in pixels of the frame: the step runs on the part of the picture in each box, and the outputs have a row per box"`
	IDs     string  `yaml:"ids" example:"ids" advanced:"yes" help:"tensor with the ids of the boxes, from a model with output.track; for refresh"`
	Max     int     `yaml:"max" default:"32" min:"1" max:"1024" advanced:"yes" help:"most boxes of a frame; further boxes get no row"`
	Margin  float64 `yaml:"margin" max:"10" advanced:"yes" example:"0.1" help:"margin on each side of a box, as a share of the box's width or height"`
	Refresh Refresh `yaml:"refresh" unset:"each frame" example:"10" advanced:"yes" help:"run the step again for an id after a number of frames (10) or a time (1s); between runs, the last outputs are used"`
}

// Refresh is a number of frames or a time.
type Refresh struct {
	Frames int
	After  time.Duration
}

// UnmarshalText reads 10 or 1s.
func (r *Refresh) UnmarshalText(text []byte) error {
	if n, err := strconv.Atoi(string(text)); err == nil {
		if n < 1 || n > 1e6 {
			return fmt.Errorf("%d is not between 1 and 1000000 frames", n)
		}
		*r = Refresh{Frames: n}
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil || d <= 0 || d > time.Hour {
		return fmt.Errorf("%.40q is not a number of frames, such as 10, or a time of at most 1h, such as 1s", text)
	}
	*r = Refresh{After: d}
	return nil
}

// MarshalText writes the form read by UnmarshalText.
func (r Refresh) MarshalText() ([]byte, error) {
	if r.Frames > 0 {
		return strconv.AppendInt(nil, int64(r.Frames), 10), nil
	}
	return []byte(setting.FormatDuration(r.After)), nil
}

// title returns the name of a step.
func (s *Step) title() string {
	if s.Name != "" {
		return s.Name
	}
	return s.Model
}

// stepField is the field of errors about a step.
func stepField(step string) string { return "steps." + step }

// Validate checks the rules beyond the tags. The load of the graph checks the rules that depend on the models.
func (s *Settings) Validate() error {
	if len(s.Steps) == 0 {
		return coded.Errorf(coded.InvalidArgument, "steps",
			"is missing: a graph needs at least one step, as - model: NAME")
	}
	if len(s.Steps) > maxSteps {
		return coded.Errorf(coded.InvalidArgument, "steps", "has %d steps: at most %d are possible", len(s.Steps),
			maxSteps)
	}
	var errs []error
	names := map[string]bool{}
	for i := range s.Steps {
		st := &s.Steps[i]
		if st.Model == "" {
			errs = append(errs, coded.Errorf(coded.InvalidArgument, fmt.Sprintf("steps[%d].model", i), "is missing"))
			continue
		}
		name := st.title()
		if names[name] {
			errs = append(errs, coded.Errorf(coded.InvalidArgument, stepField(name)+".name",
				"is the name of two steps: give each its own"))
		}
		names[name] = true
		if c := st.Crop; c != nil {
			if c.Boxes == "" {
				errs = append(errs, coded.Errorf(coded.InvalidArgument, stepField(name)+".crop.boxes",
					"is missing: name the tensor of boxes"))
			}
			if (c.IDs == "") != (c.Refresh == Refresh{}) {
				errs = append(errs, coded.Errorf(coded.InvalidArgument, stepField(name)+".crop",
					"ids and refresh need each other: set both or none"))
			}
		}
	}
	if len(errs) == 0 {
		errs = append(errs, s.circle())
	}
	return setting.Join(errs...)
}

// makers returns, for each tensor named by a step as an output, the index of the step.
func (s *Settings) makers() map[string]int {
	made := map[string]int{}
	for i := range s.Steps {
		for _, tensor := range s.Steps[i].Output {
			made[tensor] = i
		}
	}
	return made
}

// needs returns the names of the tensors named by a step.
func (s *Step) needs() (names []string) {
	for _, tensor := range s.Input {
		names = append(names, tensor)
	}
	if s.When.Tensor != "" {
		names = append(names, s.When.Tensor)
	}
	if s.Crop != nil {
		names = append(names, s.Crop.Boxes)
		if s.Crop.IDs != "" {
			names = append(names, s.Crop.IDs)
		}
	}
	return names
}

// circle returns an error if steps wait for each other, according to the named tensors.
func (s *Settings) circle() error {
	made := s.makers()
	return circle(len(s.Steps), func(i int) (before []int) {
		for _, tensor := range s.Steps[i].needs() {
			if k, ok := made[tensor]; ok {
				before = append(before, k)
			}
		}
		return before
	}, func(i int) string { return s.Steps[i].title() })
}

// circle returns an error if any of n steps waits for itself.
func circle(n int, before func(int) []int, name func(int) string) error {
	state := make([]int, n) // 1: being visited, 2: done
	var path []int
	var visit func(i int) error
	visit = func(i int) error {
		state[i], path = 1, append(path, i)
		for _, k := range before(i) {
			if state[k] == 1 {
				var names []string
				for _, p := range path[slices.Index(path, k):] {
					names = append(names, name(p))
				}
				return coded.Errorf(coded.InvalidArgument, stepField(name(k))+".input",
					"is part of a circle: each of %s waits for the next, and the last for the first",
					strings.Join(names, ", "))
			}
			if state[k] == 0 {
				if err := visit(k); err != nil {
					return err
				}
			}
		}
		state[i], path = 2, path[:len(path)-1]
		return nil
	}
	for i := range n {
		if state[i] == 0 {
			if err := visit(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// uses returns the models of the steps.
func uses(settings any) (out []workers.Use) {
	s := settings.(*Settings)
	for i := range s.Steps {
		st := &s.Steps[i]
		out = append(out, workers.Use{At: stepField(st.title()), Model: st.Model, Version: st.Version})
	}
	return out
}

// Params returns the parameters of a graph with these settings.
func (s *Settings) Params() stream.Params {
	t := setting.TableOf("", s)
	p := stream.Params{}
	for _, l := range t.Lists() {
		p[l.Path] = l.Param()
	}
	for _, f := range t.Fields() {
		if v := f.Param(); v != nil {
			p[f.Path] = v
		}
	}
	return p
}
