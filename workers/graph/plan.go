package graph

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/workers"
)

// plan is an immutable graph with numbered tensors, so that a run needs no names.
type plan struct {
	tensors   []tensorInfo
	inputs    []int // the tensors of requests
	outputs   []int // the tensors of results
	steps     []*step
	first     []*step // steps that wait for no step
	picture   int     // the picture among the inputs, or -1
	crops     bool    // a step is a crop
	pixels    bool    // a step gets pixels
	noAxis    bool    // the graph has no batch axis, because a model has none or the declared shapes have none
	rows      []bool  // by output: the first axis, of one row, is not part of the graph's output
	keeps     bool    // something is kept for each stream: a model's state, or results of crops
	decoupled bool    // a step's model may answer several times
}

// tensorInfo is the knowledge about a tensor before a request comes.
type tensorInfo struct {
	name  string
	maker int                // the step that makes the tensor, or -1: a request has the tensor
	spec  *stream.TensorSpec // nil: not known
}

// port is an input or output of a step's model.
type port struct {
	name   string
	tensor int
	spec   *stream.TensorSpec // of the model; nil: not known
	noAxis bool               // the model has no batch axis
	pixels bool               // gets the picture of the request as pixels, in the form of spec
}

// step is a step of a plan.
type step struct {
	index     int
	at        string // the field of errors
	set       *Step
	in, out   []port
	needs     []int // tensors required for the step to run
	waits     int   // number of steps to wait for
	next      []*step
	when      int // tensor of the condition, or -1
	boxes     int // of a crop, otherwise -1
	ids       int // of a crop with refresh, otherwise -1
	picture   int // of a crop: the picture's tensor
	keeps     bool
	image     bool    // the model takes pictures
	pixels    bool    // a port gets pixels
	decoupled bool    // the model may answer several times, or never
	after     []*step // of a decoupled step: the steps run for each answer
}

// errorf returns an error about a part of a step.
func (s *step) errorf(code coded.Code, part, format string, args ...any) error {
	return coded.Errorf(code, strings.TrimSuffix(s.at+"."+part, "."), format, args...)
}

// builder makes a plan.
type builder struct {
	set      *Settings
	models   []*stream.Model
	declared workers.Declared
	p        *plan
	byName   map[string]int
	// pictures are the tensors used by steps as the picture of the request.
	pictures map[string]bool
}

// newPlan makes the plan of a graph of models, and the metadata of the graph.
func newPlan(set *Settings, models []*stream.Model, declared workers.Declared) (*plan, *stream.Model, error) {
	b := &builder{set: set, models: models, declared: declared, p: &plan{picture: -1}, byName: map[string]int{},
		pictures: map[string]bool{}}
	for i := range set.Steps {
		st := &set.Steps[i]
		m := models[i]
		b.p.steps = append(b.p.steps, &step{
			index: i, at: stepField(st.title()), set: st, when: -1, boxes: -1, ids: -1, picture: -1,
			keeps: m.KeepsState(),
			image: m.Image != nil && !m.AcceptsAnyInput,
		})
	}
	for _, do := range []func(*step, *stream.Model) error{b.addOutputs, b.findPictures, b.addInputs} {
		for i, s := range b.p.steps {
			if err := do(s, models[i]); err != nil {
				return nil, nil, err
			}
		}
	}
	if err := b.connect(); err != nil {
		return nil, nil, err
	}
	if err := b.findDecoupled(); err != nil {
		return nil, nil, err
	}
	if err := b.chooseOutputs(); err != nil {
		return nil, nil, err
	}
	m, err := b.describe()
	return b.p, m, err
}

func (b *builder) add(t tensorInfo) int {
	b.byName[t.name] = len(b.p.tensors)
	b.p.tensors = append(b.p.tensors, t)
	return b.byName[t.name]
}

// addOutputs adds the tensors made by a step.
func (b *builder) addOutputs(s *step, m *stream.Model) error {
	add := func(output, tensor string, spec *stream.TensorSpec) error {
		if other, taken := b.byName[tensor]; taken {
			return s.errorf(coded.InvalidArgument, "output."+output,
				"makes the tensor %s, which step %s makes already: give it another name", tensor,
				b.p.steps[b.p.tensors[other].maker].set.title())
		}
		made := spec
		if spec != nil {
			copied := *spec
			if copied.Name = tensor; s.set.Crop != nil {
				copied.Shape = append([]int{-1}, spec.Shape...)
			}
			made = &copied
		}
		s.out = append(s.out, port{output, b.add(tensorInfo{tensor, s.index, made}), spec, m.Axis == stream.NoAxis,
			false})
		return nil
	}
	if len(s.set.Output) == 0 {
		if len(m.Outputs) == 0 {
			return s.errorf(coded.InvalidArgument, "output", "is missing: the outputs of model %s are not known "+
				"before it runs, so name those that the graph uses, as OUTPUT: TENSOR", m.Name)
		}
		for i := range m.Outputs {
			if err := add(m.Outputs[i].Name, m.Outputs[i].Name, &m.Outputs[i]); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.set.Output)) {
		spec := find(m.Outputs, name)
		if spec == nil && len(m.Outputs) > 0 {
			return s.errorf(coded.InvalidArgument, "output."+name, "is not an output of model %s%s, which has %s",
				m.Name, setting.Suggest(name, namesOf(m.Outputs)), strings.Join(namesOf(m.Outputs), ", "))
		}
		if err := add(name, s.set.Output[name], spec); err != nil {
			return err
		}
	}
	return nil
}

// findPictures notes the tensors, made by no step, that a step takes as a picture.
func (b *builder) findPictures(s *step, m *stream.Model) error {
	for i := range m.Inputs {
		name := m.Inputs[i].Name
		tensor, ok := s.set.Input[name]
		if !ok && m.Inputs[i].Optional {
			continue
		}
		if !ok {
			tensor = name
		}
		if _, made := b.byName[tensor]; !made && (s.image || m.Inputs[i].Color != "") {
			b.pictures[tensor] = true
		}
	}
	return nil
}

// takesPixels reports whether an input can be made of the picture of a request: a program declares the input as a
// picture, or the model has several inputs and this one has the form of pixels.
func takesPixels(s *step, spec *stream.TensorSpec, inputs int) bool {
	if s.image || spec == nil {
		return false
	}
	return spec.Color != "" || inputs > 1 && spec.Datatype == stream.Uint8 && len(spec.Shape) == 3 &&
		(spec.Shape[2] == 3 || spec.Shape[2] == 1)
}

// addInputs connects the inputs of a step's model to tensors.
func (b *builder) addInputs(s *step, m *stream.Model) error {
	names := namesOf(m.Inputs)
	known := len(names) > 0
	for _, name := range slices.Sorted(maps.Keys(s.set.Input)) {
		if known && !slices.Contains(names, name) {
			return s.errorf(coded.InvalidArgument, "input."+name, "is not an input of model %s%s, which has %s%s",
				m.Name, setting.Suggest(name, names), strings.Join(names, ", "), b.hint(m, name, s.set.Input[name]))
		}
		if !known {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return s.errorf(coded.InvalidArgument, "input",
			"is missing: the inputs of model %s are not known before it runs, so name them, as INPUT: TENSOR%s",
			m.Name, hintsFor(m))
	}
	if s.set.Crop != nil && (!s.image || len(names) != 1) {
		return s.errorf(coded.InvalidArgument, "crop",
			"needs a model that takes pictures, which %s does not: set input.image for it", m.Name)
	}
	for _, name := range names {
		tensor, ok := s.set.Input[name]
		if !ok {
			tensor = name
		}
		spec := find(m.Inputs, name)
		if !ok && b.omits(spec) {
			continue
		}
		pixels := b.pictures[tensor] && takesPixels(s, spec, len(names))
		k, err := b.use(s, "input."+name, tensor, spec, pixels)
		if err != nil {
			return err
		}
		// any, by the hints
		s.in = append(s.in, port{name, k, spec, m.Axis == stream.NoAxis || m.AcceptsAnyInput, pixels})
		if pixels {
			s.pixels, b.p.pixels = true, true
		}
		made := b.p.tensors[k].maker >= 0
		if made || spec == nil || !spec.Optional {
			s.need(k)
		}
		if s.set.Crop != nil {
			if made {
				return s.errorf(coded.InvalidArgument, "input."+name, "is cut out of tensor %s, but boxes can only "+
					"be cut out of the picture of the request: name an input of the graph", tensor)
			}
			s.picture = k
		}
		if (s.image || pixels) && b.p.tensors[k].maker < 0 {
			if b.p.picture >= 0 && b.p.picture != k {
				return s.errorf(coded.InvalidArgument, "input."+name,
					"takes the picture %s, and another step the picture %s: a request has one picture", tensor,
					b.p.tensors[b.p.picture].name)
			}
			b.p.picture = k
		}
	}
	if len(s.in) == 0 {
		return s.errorf(coded.InvalidArgument, "input",
			"is missing: requests may leave out all inputs of model %s (%s): map one of them to a tensor", m.Name,
			strings.Join(names, ", "))
	}
	return b.addOthers(s)
}

// isClass reports whether a model is a class or function in Python, whose inputs are arguments with type hints.
func isClass(m *stream.Model) bool { return m.App != nil && m.App.Style == "millrace" }

// boxesParts are the inputs of a class with an argument of type millrace.Boxes.
var boxesParts = [...]string{"boxes", "scores", "classes", "labels", "ids", "keypoints"}

// takesBoxes reports whether an argument of a class has the type millrace.Boxes: only then are all parts of boxes
// inputs.
func takesBoxes(m *stream.Model) bool {
	return !slices.ContainsFunc(boxesParts[:], func(part string) bool { return find(m.Inputs, part) == nil })
}

// boxesFor returns the tensor for the input boxes where a step names a tensor for an argument with the type
// millrace.Boxes: the tensor itself, or boxes if a step makes boxes and the tensor has another form.
func (b *builder) boxesFor(tensor string) string {
	k, known := b.byName[tensor]
	if _, made := b.byName["boxes"]; !made ||
		known && b.p.tensors[k].spec != nil && len(b.p.tensors[k].spec.Shape) == 2 {
		return tensor
	}
	return "boxes"
}

// hint returns the declaration of an argument of a class for a tensor, as the end of an error; "" when m is no class.
func (b *builder) hint(m *stream.Model, argument, tensor string) string {
	if !isClass(m) {
		return ""
	}
	if takesBoxes(m) {
		return fmt.Sprintf(". If %s is the argument with the type millrace.Boxes, its inputs are %s: write boxes: "+
			"%s in place of %[1]s: %[4]s, and the other inputs likewise. "+
			"Any other argument needs a type hint with its datatype and shape", argument,
			strings.Join(boxesParts[:], ", "), b.boxesFor(tensor), tensor)
	}
	hint := `millrace.Tensor["FP32", -1]`
	if k, ok := b.byName[tensor]; ok && b.p.tensors[k].spec != nil {
		hint = hintOf(b.p.tensors[k].spec)
	}
	return fmt.Sprintf(". If %s is an argument of the class, give it a type hint with its datatype and shape: %s: %s",
		argument, argument, hint)
}

// hintsFor returns the advice to declare the arguments of a class, as the end of an error; "" when m is no class.
func hintsFor(m *stream.Model) string {
	if !isClass(m) {
		return ""
	}
	return `, or give the arguments of the class type hints with a datatype and shape, such as ` +
		`millrace.Tensor["FP32", -1]`
}

// hintOf returns the type hint of an argument for a tensor.
func hintOf(spec *stream.TensorSpec) string {
	if spec.Datatype == stream.Bytes && len(spec.Shape) == 1 {
		return "typing.List[str]"
	}
	hint := fmt.Sprintf("millrace.Tensor[%q", spec.Datatype)
	for _, n := range spec.Shape {
		hint += fmt.Sprintf(", %d", n)
	}
	return hint + "]"
}

// omits reports whether a step does without an input that the step does not name: requests may leave the input out,
// no step makes a tensor of the name, and a request with a picture has no other inputs.
func (b *builder) omits(spec *stream.TensorSpec) bool {
	if spec == nil || !spec.Optional || len(b.pictures) == 0 {
		return false
	}
	k, known := b.byName[spec.Name]
	return !known || b.p.tensors[k].maker < 0
}

// addOthers connects the step's needs beside the model's inputs.
func (b *builder) addOthers(s *step) (err error) {
	made := func(part, tensor string) (int, error) {
		k, ok := b.byName[tensor]
		if !ok || b.p.tensors[k].maker < 0 {
			return 0, s.errorf(coded.InvalidArgument, part, "names the tensor %s, which no step makes%s: there are %s",
				tensor, setting.Suggest(tensor, b.made()), strings.Join(b.made(), ", "))
		}
		s.need(k)
		return k, nil
	}
	if c := s.set.When; c != (Condition{}) {
		if s.when, err = made("when", c.Tensor); err != nil {
			return err
		}
		if spec := b.p.tensors[s.when].spec; spec != nil && spec.Datatype == stream.Bytes && c.Func != "count" {
			return s.errorf(coded.InvalidArgument, "when",
				"computes %s of %s, whose elements are BYTES: only count is possible", c.Func, c.Tensor)
		}
	}
	c := s.set.Crop
	if c == nil {
		return nil
	}
	b.p.crops = true
	if s.boxes, err = made("crop.boxes", c.Boxes); err != nil {
		return err
	}
	if spec := b.p.tensors[s.boxes].spec; spec != nil && !(spec.Datatype == stream.Float32 && len(spec.Shape) == 2 &&
		spec.Shape[1] == 4) {
		return s.errorf(coded.InvalidArgument, "crop.boxes",
			"tensor %s is %s %v: want boxes, FP32 [-1 4], of a model with output.boxes or output.yolo", c.Boxes,
			spec.Datatype, spec.Shape)
	}
	if c.IDs == "" {
		return nil
	}
	if s.ids, err = made("crop.ids", c.IDs); err != nil {
		return err
	}
	if spec := b.p.tensors[s.ids].spec; spec != nil && !(spec.Datatype == stream.Int64 && len(spec.Shape) == 1) {
		return s.errorf(coded.InvalidArgument, "crop.ids",
			"tensor %s is %s %v: want the ids of a model with output.track, INT64 [-1]", c.IDs, spec.Datatype,
			spec.Shape)
	}
	b.p.keeps = true
	return nil
}

func (s *step) need(k int) {
	if !slices.Contains(s.needs, k) {
		s.needs = append(s.needs, k)
	}
}

// made returns the names of the tensors made by steps.
func (b *builder) made() (names []string) {
	for _, t := range b.p.tensors {
		if t.maker >= 0 {
			names = append(names, t.name)
		}
	}
	return names
}

// use returns the tensor with a name. A tensor made by no step becomes an input of the graph.
func (b *builder) use(s *step, part, tensor string, spec *stream.TensorSpec, pixels bool) (int, error) {
	k, ok := b.byName[tensor]
	if !ok {
		t := tensorInfo{tensor, -1, nil}
		if spec != nil {
			copied := *spec
			copied.Name, t.spec = tensor, &copied
		}
		k = b.add(t)
		b.p.inputs = append(b.p.inputs, k)
		return k, nil
	}
	t := &b.p.tensors[k]
	if t.spec != nil && (spec == nil || !spec.Optional) {
		t.spec.Optional = false
	}
	if t.maker == s.index {
		return 0, s.errorf(coded.InvalidArgument, part, "takes the tensor %s, which the step makes itself", tensor)
	}
	if t.spec == nil && t.maker < 0 && spec != nil {
		copied := *spec
		copied.Name, copied.Optional, t.spec = tensor, false, &copied
	}
	if t.maker < 0 && (s.image || pixels) && b.p.picture == k { // each step makes a separate tensor of the picture
		return k, nil
	}
	return k, fits(s, part, t, spec)
}

// fits returns an error if a tensor cannot be an input with the given specification.
func fits(s *step, part string, t *tensorInfo, spec *stream.TensorSpec) error {
	if t.spec == nil || spec == nil {
		return nil
	}
	if t.spec.Datatype != spec.Datatype {
		return s.errorf(coded.InvalidArgument, part, "wants %s, but tensor %s is %s", spec.Datatype, t.name,
			t.spec.Datatype)
	}
	same := len(t.spec.Shape) == len(spec.Shape)
	for i := 0; same && i < len(spec.Shape); i++ {
		x, y := t.spec.Shape[i], spec.Shape[i]
		same = x == y || x < 0 || y < 0
	}
	if !same {
		return s.errorf(coded.InvalidArgument, part, "wants the shape %v, but tensor %s has %v (-1 = any)", spec.Shape,
			t.name, t.spec.Shape)
	}
	return nil
}

// connect finds the dependencies between the steps, and refuses cycles.
func (b *builder) connect() error {
	before := func(i int) (out []int) {
		for _, k := range b.p.steps[i].needs {
			if m := b.p.tensors[k].maker; m >= 0 && !slices.Contains(out, m) {
				out = append(out, m)
			}
		}
		return out
	}
	if err := circle(len(b.p.steps), before, func(i int) string { return b.p.steps[i].set.title() }); err != nil {
		return err
	}
	for i, s := range b.p.steps {
		b.p.keeps = b.p.keeps || s.keeps
		for _, k := range before(i) {
			s.waits++
			b.p.steps[k].next = append(b.p.steps[k].next, s)
		}
		if s.waits == 0 {
			b.p.first = append(b.p.first, s)
		}
	}
	return nil
}

// chooseOutputs finds the tensors of results.
func (b *builder) chooseOutputs() error {
	if len(b.set.Outputs) == 0 {
		for k, t := range b.p.tensors {
			if t.maker >= 0 {
				b.p.outputs = append(b.p.outputs, k)
			}
		}
		return nil
	}
	for i, name := range b.set.Outputs {
		k, ok := b.byName[name]
		field := fmt.Sprintf("outputs[%d]", i)
		if !ok || b.p.tensors[k].maker < 0 {
			return coded.Errorf(coded.InvalidArgument, field, "is %s, which no step makes%s: there are %s", name,
				setting.Suggest(name, b.made()), strings.Join(b.made(), ", "))
		}
		if slices.Contains(b.p.outputs, k) {
			return coded.Errorf(coded.InvalidArgument, field, "is %s a second time", name)
		}
		b.p.outputs = append(b.p.outputs, k)
	}
	return nil
}

// describe makes the metadata of the graph.
func (b *builder) describe() (*stream.Model, error) {
	m := &stream.Model{Ragged: true, Stateful: b.p.keeps, Decoupled: b.p.decoupled}
	m.Calls = slices.ContainsFunc(b.models, (*stream.Model).TakesCalls) // all other steps refuse calls
	var whole *step                                                     // the first step with the whole picture
	for i, s := range b.p.steps {
		of := b.models[i]
		if m.Policy == (stream.Policy{}) {
			m.Policy = of.Policy // as when the first model is used alone
		}
		if !of.AcceptsAnyInput && s.set.Crop == nil && of.Axis == stream.NoAxis {
			m.Axis, b.p.noAxis = stream.NoAxis, true
		}
		if !of.AcceptsAnyInput && s.set.Crop == nil && (m.MaxBatch == 0 || of.MaxBatch < m.MaxBatch) {
			m.MaxBatch = of.MaxBatch
		}
		m.NeedsFullSize = m.NeedsFullSize || s.set.Crop != nil || s.pixels || of.NeedsFullSize
		m.PictureSteps = append(m.PictureSteps, b.pictureSteps(s, of)...)
		if s.image && s.in[0].tensor == b.p.picture && (m.Image == nil || whole == nil && s.set.Crop == nil) {
			image, spec := *of.Image, of.Inputs[0]
			m.Image, spec.Name = &image, b.p.tensors[b.p.picture].name
			b.p.tensors[b.p.picture].spec = &spec
			if s.set.Crop == nil {
				whole = s
			}
		}
	}
	if m.MaxBatch == 0 {
		m.MaxBatch = 16
	}
	m.NeedsFullSize = m.NeedsFullSize || b.severalImages()
	if samePicture(m.PictureSteps) {
		m.PictureSteps = nil
	}
	for _, k := range b.p.inputs {
		t := b.p.tensors[k]
		if t.spec == nil {
			m.AcceptsAnyInput = true
			continue
		}
		m.Inputs = append(m.Inputs, *t.spec)
	}
	if len(b.p.inputs) == 0 {
		return nil, coded.Errorf(coded.InvalidArgument, "steps",
			"take nothing from a request: map an input of a step to a tensor that no step makes")
	}
	if b.p.picture >= 0 && len(b.p.inputs) > 1 {
		other := b.p.inputs[0]
		if other == b.p.picture {
			other = b.p.inputs[1]
		}
		t, more := &b.p.tensors[other], ""
		if t.spec != nil && t.spec.Optional {
			more = ". The input has a default: leave it out of `input`"
		}
		return nil, coded.Errorf(coded.InvalidArgument, "steps",
			"take the picture %s and the input %s%s: a request with a picture has no other inputs%s",
			b.p.tensors[b.p.picture].name, t.name, setting.Suggest(t.name, b.made()), more)
	}
	if b.singleRow() {
		m.Axis, m.MaxBatch, b.p.noAxis = stream.NoAxis, 1, true
	}
	switch {
	case m.AcceptsAnyInput:
		m.Inputs, m.Image = nil, nil
	case b.p.pixels && m.Image == nil: // decoded for the steps with pixels
		m.AcceptsAnyInput, m.Inputs[0].Unbatched = true, true
	}
	b.p.rows = make([]bool, len(b.p.outputs))
	for i, k := range b.p.outputs {
		t := &b.p.tensors[k]
		if t.spec == nil {
			continue
		}
		b.p.rows[i] = b.leavesRowOut(t)
		m.Outputs = append(m.Outputs, b.output(t, b.p.rows[i]))
	}
	return m, nil
}

// pictureSteps returns the picture taken from the request's picture by a step, or by each step of a nested graph.
func (b *builder) pictureSteps(s *step, of *stream.Model) (list []stream.PictureStep) {
	for _, in := range s.in {
		one := stream.PictureStep{Step: s.set.title(), Crop: s.set.Crop != nil}
		switch {
		case in.tensor != b.p.picture || !s.image && !in.pixels:
			continue
		case len(of.PictureSteps) > 0:
			for _, inner := range of.PictureSteps {
				inner.Step, inner.Crop = one.Step+"."+inner.Step, inner.Crop || one.Crop
				list = append(list, inner)
			}
			continue
		case s.image:
			one.Width, one.Height, one.Color = of.Image.Width, of.Image.Height, of.Image.Color
		default:
			one.Width, one.Height, one.Color = pixelForm(in.spec)
		}
		list = append(list, one)
	}
	return list
}

// samePicture reports whether one picture describes the pictures of all steps.
func samePicture(list []stream.PictureStep) bool {
	for _, s := range list {
		if first := list[0]; s.Crop || s.Width != first.Width || s.Height != first.Height || s.Color != first.Color {
			return false
		}
	}
	return true
}

// severalImages reports whether steps with the whole picture take several sizes, or several ways of fitting: frames
// of video scaled for one step lack the pixels for another step.
func (b *builder) severalImages() bool {
	var first *stream.ImageSpec
	for i, s := range b.p.steps {
		if !s.image || s.in[0].tensor != b.p.picture {
			continue
		}
		image := b.models[i].Image
		if first == nil {
			first = image
		}
		if image.Width != first.Width || image.Height != first.Height || image.Fit != first.Fit {
			return true
		}
	}
	return false
}

// singleRow reports whether, by the declared shapes of the inputs, the graph takes one row without a batch axis,
// although the models of the steps have a batch axis.
func (b *builder) singleRow() bool {
	if !b.declared.Single || b.p.picture >= 0 || len(b.declared.Inputs) == 0 {
		return false
	}
	for _, k := range b.p.inputs {
		t := &b.p.tensors[k]
		i := slices.IndexFunc(b.declared.Inputs, func(d workers.Tensor) bool { return d.Name == t.name })
		if t.spec == nil || i < 0 || len(b.declared.Inputs[i].Shape) != len(t.spec.Shape) {
			return false
		}
	}
	return true
}

// leavesRowOut reports whether an output of a model with a batch axis becomes an output of the graph without the
// axis.
func (b *builder) leavesRowOut(t *tensorInfo) bool {
	if !b.declared.Single || !b.p.noAxis || t.spec.Unbatched || b.models[t.maker].Axis == stream.NoAxis ||
		b.set.Steps[t.maker].Crop != nil {
		return false
	}
	i := slices.IndexFunc(b.declared.Outputs, func(d workers.Tensor) bool { return d.Name == t.name })
	return i >= 0 && len(b.declared.Outputs[i].Shape) == len(t.spec.Shape)
}

// output describes the graph's output t. The shape in metadata is the shape of the answer of the step's model, or of
// joinOutput.
func (b *builder) output(t *tensorInfo, rowLeftOut bool) stream.TensorSpec {
	spec, of := *t.spec, b.models[t.maker]
	if rowLeftOut {
		return spec
	}
	if b.set.Steps[t.maker].Crop != nil {
		spec.Unbatched = false
		return spec
	}
	spec.Unbatched = spec.Unbatched || of.Axis == stream.NoAxis
	if b.p.noAxis && !spec.Unbatched {
		spec.Shape = append([]int{1}, spec.Shape...) // the batch axis of the step's model
	}
	return spec
}

func find(specs []stream.TensorSpec, name string) *stream.TensorSpec {
	for i := range specs {
		if specs[i].Name == name {
			return &specs[i]
		}
	}
	return nil
}

func namesOf(specs []stream.TensorSpec) (names []string) {
	for _, s := range specs {
		names = append(names, s.Name)
	}
	return names
}

// rowsOf returns the sum of the rows in the batches of the steps' workers.
func rowsOf(groups []*workers.Group) (n int) {
	var seen []*workers.Group
	for _, g := range groups {
		if !slices.Contains(seen, g) {
			seen = append(seen, g)
			n += g.Workers() * g.Model().MaxBatch
		}
	}
	return n
}
