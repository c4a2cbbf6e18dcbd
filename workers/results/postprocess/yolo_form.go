package postprocess

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	names "millrace/internal/labels"
	"millrace/stream"
)

// yoloForm is what the tensor of a YOLO model has for each box:
//
//	detect, v8   cx cy w h, a score for each class
//	detect, v5   cx cy w h, objectness, a score for each class
//	detect, yolox  the same, with cx cy in cells of a grid and logarithms of w h in cells
//	segment      after the classes of v8 or v5: a coefficient for each prototype of masks
//	pose         after the classes of v8: x y, or x y visibility, of each key point
//	obb          after the classes of v8: the angle in radians, clockwise
//	end2end      x1 y1 x2 y2 score class, then what the task has after the classes; obb has
//	             cx cy w h in front
//	end2end, v7  the row of the batch, x1 y1 x2 y2 class score
type yoloForm struct {
	task    string // detect, segment, pose or obb
	end2end bool   // the model suppresses overlapping boxes
	v5, v7  bool
	yolox   bool // v5, with positions in cells of grids
	columns bool // [numbers of a box, n]; otherwise [n, numbers of a box]
	width   int  // numbers of a box
	classes int  // -1 = unknown
	points  int  // of task pose, each of dims numbers
	dims    int
	masks   int // prototypes of task segment
}

// name returns the value of the setting task.
func (f yoloForm) name() string {
	switch {
	case !f.end2end:
		return f.task
	case f.task == "detect":
		return "end2end"
	}
	return "end2end-" + f.task
}

func (f yoloForm) layout() string {
	switch {
	case f.end2end:
		return ""
	case f.yolox:
		return "yolox"
	case f.v5:
		return "v5"
	}
	return "v8"
}

// settings returns the settings that select f.
func (f yoloForm) settings() string {
	text := "task: " + f.name()
	if l := f.layout(); l != "" && (f.task == "detect" || f.task == "segment") {
		text += ", layout: " + l
	}
	if f.task == "pose" {
		text += fmt.Sprintf(", kpt_shape: %dx%d", f.points, f.dims)
	}
	return text
}

// selectingSettings returns the smallest set of settings that selects f among forms.
func (f yoloForm) selectingSettings(forms []yoloForm) string {
	text := "task: " + f.name()
	same := func(o yoloForm) bool { return o.name() == f.name() }
	if slices.ContainsFunc(forms, func(o yoloForm) bool { return same(o) && o.layout() != f.layout() }) {
		text += ", layout: " + f.layout()
	}
	if f.task == "pose" && slices.ContainsFunc(forms, func(o yoloForm) bool {
		return same(o) && (o.points != f.points || o.dims != f.dims)
	}) {
		text += fmt.Sprintf(", kpt_shape: %dx%d", f.points, f.dims)
	}
	return text
}

func (f yoloForm) classesText() string {
	switch f.classes {
	case -1:
		return "the classes"
	case 1:
		return "1 class"
	}
	return itoa(f.classes) + " classes"
}

// describe describes the meaning of f for the tensor's shape.
func (f yoloForm) describe() string {
	var text string
	switch {
	case f.v7:
		text = "final boxes, each row with its picture, corners, class, score"
	case f.end2end && f.task == "obb":
		text = "final rotated boxes"
	case f.end2end:
		text = "final boxes, each row with corners, score, class"
	case f.task == "obb":
		text = "rotated boxes of " + f.classesText()
	case f.yolox:
		text = "boxes of " + f.classesText() + " with objectness, positions in cells of YOLOX's grids"
	case f.v5:
		text = "boxes of " + f.classesText() + " with objectness"
	default:
		text = "boxes of " + f.classesText()
	}
	switch f.task {
	case "pose":
		text += fmt.Sprintf(", %d key points of %d numbers", f.points, f.dims)
	case "segment":
		text += fmt.Sprintf(", %d coefficients of masks", f.masks)
	}
	return text
}

func itoa(n int) string { return strconv.Itoa(n) }

// yoloFacts are the known properties of a form: from the settings, else from the metadata of the file.
type yoloFacts struct {
	exported
	setTask   bool   // task and end2end are the setting's
	layout    string // the setting
	labels    int    // names in the file of output.labels; 0 = none
	anchors   []int  // numbers of boxes for models of the input's size; with v5 also three times each number
	prototype int    // numbers of prototypes of masks; 0 = the model has none
	unbatched bool
}

// choose returns the only possible form of the tensor, and the names of the classes in the model's file.
func (c *YOLO) choose(f *finder, s stream.TensorSpec) (yoloForm, []string, error) {
	k := yoloFacts{exported: readExported(f.model.Metadata), layout: c.Layout, unbatched: s.Unbatched,
		prototype: prototypes(f.model.Outputs)}
	if k.task != "" && !slices.Contains([]string{"detect", "segment", "pose", "obb"}, k.task) && c.Task == "" {
		return yoloForm{}, nil, f.settingError("task",
			"is not set, and the metadata of the model's file say task %q: use "+
				"output.classify for classifiers, or set task", k.task)
	}
	fromFile := k.task != ""
	if c.Task != "" {
		e, _ := parseTask(c.Task)
		k.setTask, k.task, k.end2end = true, e.task, &e.end2end
	}
	if c.Layout != "" && c.Task == "" && k.task == "" {
		k.task = "detect"
	}
	if c.KptShape != "" {
		var err error
		if k.points, k.dims, err = parseKptShape(c.KptShape); err != nil {
			return yoloForm{}, nil, f.settingError("kpt_shape", "%w", err)
		}
	}
	if f.labels != "" {
		list, err := names.Read(f.labels)
		if err != nil {
			return yoloForm{}, nil, badLabels("%w", err)
		}
		k.labels = len(list)
	}
	if w, h, err := f.size(); err == nil {
		k.anchors = anchorCounts(w, h)
	}
	forms := k.forms(s.Shape[0], s.Shape[1], fromFile && c.Layout == "")
	switch len(forms) {
	case 1:
		return forms[0], k.names, nil
	case 0:
		return yoloForm{}, nil, f.settingError(k.excludingSetting(c),
			"%s fits no form of YOLO%s: the forms are [4+classes+extra, n] "+
				"(v8), [n, 5+classes] (v5; yolox, for inputs of a known size) and [n, 6+extra] (end2end); extra is 0 "+
				"for detect, the points' numbers for pose, 1 for obb, the prototypes of a second output for segment%s",
			describe([]stream.TensorSpec{s}), k.says(), k.usualBoxCount())
	}
	list := make([]string, len(forms))
	for i, o := range forms {
		list[i] = fmt.Sprintf("%s (%s)", o.selectingSettings(forms), o.describe())
	}
	return yoloForm{}, nil, f.settingError(k.missing(forms),
		"is not set, and %s fits %d forms%s: set one of these under output.yolo: %s", describe([]stream.TensorSpec{s}),
		len(forms), k.says(), strings.Join(list, "; "))
}

// missing returns the key of the setting that distinguishes forms.
func (k *yoloFacts) missing(forms []yoloForm) string {
	for _, o := range forms[1:] {
		if o.name() != forms[0].name() {
			return "task"
		}
	}
	if forms[0].layout() != forms[1].layout() {
		return "layout"
	}
	return "kpt_shape"
}

// excludingSetting returns the key of the setting that excludes all forms.
func (k *yoloFacts) excludingSetting(c *YOLO) string {
	switch {
	case c.Task != "":
		return "task"
	case c.Layout != "":
		return "layout"
	}
	return "output"
}

// says names the known properties, for an error.
func (k *yoloFacts) says() string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if k.setTask {
		add("output.yolo.task %s", yoloForm{task: k.task, end2end: *k.end2end}.name())
	} else if k.task != "" {
		add("task %s of the file's metadata", k.task)
	}
	if k.end2end != nil && !k.setTask {
		add("end2end %t of the file's metadata", *k.end2end)
	}
	if k.layout != "" {
		add("output.yolo.layout %s", k.layout)
	}
	if k.names != nil {
		add("the %d names of the file's metadata", len(k.names))
	}
	if k.points > 0 {
		add("kpt_shape %dx%d", k.points, k.dims)
	}
	if len(list) == 0 {
		return ""
	}
	return " with " + strings.Join(list, ", ")
}

// usualBoxCount says how many boxes most models of the input's size have, for an error.
func (k *yoloFacts) usualBoxCount() string {
	if len(k.anchors) == 0 {
		return ""
	}
	return fmt.Sprintf("; n is the number of boxes: for the size of the input, most models have %d, with v5 %d",
		k.anchors[0], 3*k.anchors[0])
}

// prototypes returns the first dimension of the only output [prototypes, h, w], or 0.
func prototypes(outputs []stream.TensorSpec) (n int) {
	for _, s := range outputs {
		if isPrototypes(s) {
			if n != 0 {
				return 0
			}
			n = s.Shape[0]
		}
	}
	return n
}

func isPrototypes(s stream.TensorSpec) bool {
	return isFloat(s.Datatype) && len(s.Shape) == 3 && s.Shape[0] > 0 && s.Shape[1] != 0 && s.Shape[2] != 0
}

// anchorCounts returns the numbers of boxes of models for an input of the given size, by strides.
func anchorCounts(w, h int) (counts []int) {
	for _, strides := range [][]int{{8, 16, 32}, {8, 16, 32, 64}, {4, 8, 16, 32}, {16, 32}} {
		n := 0
		for _, s := range strides {
			n += ((w + s - 1) / s) * ((h + s - 1) / s)
		}
		counts = append(counts, n)
	}
	return counts
}

// forms returns the possible forms of a tensor [a, b]. ultralytics means that the export's metadata have the task:
// such models have no layout v5.
func (k *yoloFacts) forms(a, b int, ultralytics bool) []yoloForm {
	columns, rows := k.likely(b, a), k.likely(a, b)
	var list []yoloForm
	if b > 0 {
		list = append(k.finalForms(b), k.rawForms(b, false)...)
	}
	if raw := k.rawForms(a, true); a > b && b > 0 {
		list = append(list, raw...) // last: of forms with equal settings, distinct keeps the first
	} else if a > 0 {
		list = append(raw, list...)
	}
	if k.mayBeGrid(a) && b > 5 {
		list = append(list, yoloForm{task: "detect", v5: true, yolox: true, width: b, classes: b - 5})
	}
	likely := func(o yoloForm) int {
		switch {
		case o.columns:
			return columns
		case o.end2end && (k.end2end != nil || o.width == 6 && columns < 2 && rows < 2):
			return 3 // models may have any number of final boxes
		case o.end2end && rows > 1:
			return -1 // not a number of final boxes
		}
		return rows
	}
	// The number of names tells the dimension with the boxes, for any likelihood.
	certain := func(o yoloForm) bool { return k.names != nil && !o.end2end && (o.task != "pose" || k.points > 0) }
	best, top := 0, 0
	list = slices.DeleteFunc(list, func(o yoloForm) bool {
		// Tools that turn columns to rows are rare, and need a matching number of boxes.
		rare := k.task == "" && !o.columns && !o.end2end && !o.v5 && o.task != "detect" &&
			!slices.Contains(k.anchors, a)
		if k.excludes(o) || ultralytics && o.v5 || rare {
			return true
		}
		top = max(top, likely(o))
		if certain(o) {
			best = max(best, likely(o))
		}
		return false
	})
	least := k.minLikelihood(max(columns, rows), top)
	list = slices.DeleteFunc(list, func(o yoloForm) bool {
		return certain(o) && likely(o) < best || !certain(o) && likely(o) < least
	})
	keep := func(want func(yoloForm) bool) {
		if slices.ContainsFunc(list, want) {
			list = slices.DeleteFunc(list, func(o yoloForm) bool { return !want(o) })
		}
	}
	// With these metadata, an export is not end2end.
	if ultralytics && k.end2end == nil {
		keep(func(o yoloForm) bool { return o.end2end })
	}
	if k.labels > 0 && k.names == nil {
		keep(func(o yoloForm) bool { return o.classes == k.labels || o.classes < 0 })
	}
	if k.task == "" && k.prototype > 0 {
		keep(func(o yoloForm) bool { return o.task == "segment" })
	}
	if k.task == "" && k.unbatched && a < 0 { // the number of boxes depends on the picture
		keep(func(o yoloForm) bool { return o.end2end })
	}
	if k.layout == "" && a > 0 && a%3 == 0 && slices.Contains(k.anchors, a/3) {
		keep(func(o yoloForm) bool { return o.v5 }) // three boxes for each place
	}
	// Without metadata, a tensor of 2 or 80 classes (COCO) is read without an angle. An angle with a class less would
	// be outside of 0..1 for some boxes of every picture.
	detect := func(o yoloForm) bool {
		return o.task == "detect" && !o.end2end && (o.classes == 2 || o.classes == 80) && o.columns
	}
	if k.task == "" && slices.ContainsFunc(list, detect) {
		list = slices.DeleteFunc(list, func(o yoloForm) bool { return o.task == "obb" && !o.end2end })
	}
	return distinct(list)
}

// mayBeGrid reports whether the positions of n boxes can be cells of grids, as in YOLOX's export. YOLOX's export has
// no metadata.
func (k *yoloFacts) mayBeGrid(n int) bool {
	fits := n < 0 || len(k.anchors) > 0 && n == k.anchors[0]
	return fits && (k.layout == "yolox" || k.layout == "" && k.names == nil && n > 0)
}

// likely says how well n boxes of width numbers fit: 3 when most models of the input's size
// have n boxes, 2 when some have, 1 when there are more boxes than numbers.
func (k *yoloFacts) likely(n, width int) int {
	switch i := slices.Index(k.anchors, n); {
	case width <= 0: // a form needs the width
		return -1
	case i == 0 || i < 0 && n > 0 && n%3 == 0 && slices.Index(k.anchors, n/3) == 0:
		return 3
	case i > 0 || n > 0 && n%3 == 0 && slices.Contains(k.anchors, n/3):
		return 2
	case n < 0 || n >= width:
		return 1
	}
	return 0
}

// minLikelihood returns the least likelihood for a form, of a shape whose likelier dimension has likelihood most. top
// is the highest likelihood of a form allowed by the settings and the metadata.
func (k *yoloFacts) minLikelihood(most, top int) int {
	floor := 0
	if most > 1 {
		floor = 1 // one of the two numbers is a number of boxes
		if most == 2 {
			most = 1 // few models have such a number of boxes: forms with more boxes than numbers stay
		}
	}
	if k.setTask || k.layout != "" {
		return min(most, max(top, floor)) // the settings exclude the likelier forms
	}
	return most
}

// distinct removes each form that no setting distinguishes from an earlier form.
func distinct(list []yoloForm) (kept []yoloForm) {
	for _, o := range list {
		if !slices.ContainsFunc(kept, func(e yoloForm) bool { return e.settings() == o.settings() }) {
			kept = append(kept, o)
		}
	}
	return kept
}

// excludes reports whether the known properties exclude a form.
func (k *yoloFacts) excludes(o yoloForm) bool {
	switch {
	case k.task != "" && o.task != k.task,
		k.end2end != nil && o.end2end != *k.end2end,
		k.layout != "" && o.layout() != k.layout,
		k.names != nil && o.classes != len(k.names) && o.classes >= 0,
		o.task == "pose" && k.points > 0 && (o.points != k.points || o.dims != k.dims):
		return true
	}
	return false
}

// rawForms returns the forms with a score for each class, of boxes with width numbers.
func (k *yoloFacts) rawForms(width int, columns bool) (list []yoloForm) {
	add := func(o yoloForm) {
		if o.columns, o.width = columns, width; o.classes >= 1 {
			list = append(list, o)
		}
	}
	if !columns {
		add(yoloForm{task: "detect", v5: true, classes: width - 5})
	}
	add(yoloForm{task: "detect", classes: width - 4})
	if n := k.prototype; n > 0 {
		if !columns {
			add(yoloForm{task: "segment", v5: true, classes: width - 5 - n, masks: n})
		}
		add(yoloForm{task: "segment", classes: width - 4 - n, masks: n})
	}
	add(yoloForm{task: "obb", classes: width - 5})
	if k.points > 0 {
		add(yoloForm{task: "pose", classes: width - 4 - k.points*k.dims, points: k.points, dims: k.dims})
		return list
	}
	classes := 1 // most models of poses have one class
	if k.names != nil {
		classes = len(k.names)
	}
	for _, dims := range []int{3, 2} {
		if rest := width - 4 - classes; rest > 0 && rest%dims == 0 && (rest > dims || k.task == "pose") {
			add(yoloForm{task: "pose", classes: classes, points: rest / dims, dims: dims})
		}
	}
	return list
}

// finalForms returns the forms of models that suppress overlapping boxes, for rows of width numbers.
func (k *yoloFacts) finalForms(width int) (list []yoloForm) {
	classes := -1
	if k.names != nil {
		classes = len(k.names)
	}
	add := func(o yoloForm) {
		o.end2end, o.width, o.classes = true, width, classes
		list = append(list, o)
	}
	rest := width - 6
	switch {
	case rest == 0:
		add(yoloForm{task: "detect"})
		return list
	case rest == 1 && k.unbatched:
		add(yoloForm{task: "detect", v7: true})
	case rest == 1:
		add(yoloForm{task: "obb"})
	}
	if rest > 0 && rest == k.prototype {
		add(yoloForm{task: "segment", masks: rest})
	}
	for _, dims := range []int{3, 2} {
		if points := rest / dims; rest%dims == 0 && (points > 1 || points == 1 && k.task == "pose") {
			add(yoloForm{task: "pose", points: rest / dims, dims: dims})
		}
	}
	return list
}
