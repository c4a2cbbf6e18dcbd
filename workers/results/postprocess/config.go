package postprocess

import (
	"slices"
	"strings"

	"millrace/internal/setting"
	"millrace/stream"
)

// Config configures the results of a model: at most one kind of result; without a kind the stage is off. Zero fields
// of a kind take their defaults. A raw tensor without a name is found by shape.
type Config struct {
	Labels    string     `yaml:"labels" path:"file" help:"file with one class name per line (classify, boxes, yolo)"`
	Classify  *Classify  `yaml:"classify"`
	Boxes     *Boxes     `yaml:"boxes"`
	YOLO      *YOLO      `yaml:"yolo"`
	Masks     *Masks     `yaml:"masks"`
	Keypoints *Keypoints `yaml:"keypoints"`
	Embedding *Embedding `yaml:"embedding"`
}

// Classify returns the classes with the highest scores.
type Classify struct {
	Output     string `yaml:"output" help:"tensor with a score for each class"`
	TopK       int    `yaml:"top_k" unset:"5, or all classes of a model with fewer" min:"1" max:"1000" advanced:"yes" help:"number of classes in a result"`
	Activation string `yaml:"activation" default:"none" words:"none softmax sigmoid" help:"activation applied to the raw scores: softmax = one class is right; sigmoid = several classes may be right; none = the scores are already from 0 to 1"`
}

// defaultTopK is the default of TopK. withDefaults does not fill TopK in, because a TopK above the number of classes
// is an error.
const defaultTopK = 5

// Boxes returns boxes with scores and classes.
type Boxes struct {
	Boxes      string  `yaml:"boxes" help:"tensor of boxes, [n, 4]"`
	Scores     string  `yaml:"scores" help:"tensor of scores, [n] or [n, classes]"`
	Classes    string  `yaml:"classes" advanced:"yes" help:"tensor of classes, [n], when scores has no axis for classes"`
	Format     string  `yaml:"format" default:"xyxy" words:"xyxy xywh cxcywh" advanced:"yes" help:"format of the raw boxes"`
	Units      string  `yaml:"units" default:"pixels" words:"pixels normalised" advanced:"yes" help:"unit of coordinates: pixels of the model's input, or normalised to 0..1"`
	Activation string  `yaml:"activation" default:"none" words:"none softmax sigmoid" advanced:"yes" help:"activation applied to the raw scores"`
	Background bool    `yaml:"background" advanced:"yes" help:"class 0 is the background: results leave the background out and number the further classes from 0"`
	Threshold  float64 `yaml:"threshold" default:"0.5" above:"0" max:"1" help:"least score of a box"`
	IoU        float64 `yaml:"iou" default:"0.5" above:"0" advanced:"yes" help:"largest overlap of two boxes of a class: beyond, the box with the lower score is removed; 1 = keep all"`
	Max        int     `yaml:"max" default:"100" min:"1" max:"1000" advanced:"yes" help:"most boxes in a result"`
}

// YOLO returns the results of Boxes for models of the YOLO family, and masks, key points or corners by the model's
// task.
type YOLO struct {
	Output    string  `yaml:"output" advanced:"yes" help:"tensor of boxes with their scores"`
	Task      string  `yaml:"task" words:"detect segment pose obb end2end end2end-segment end2end-pose end2end-obb" unset:"that of the metadata in the model's file, else the only one that fits the shape" help:"what the model finds; end2end: the model removes overlapping boxes itself"`
	Layout    string  `yaml:"layout" words:"v5 v8 yolox" unset:"the one that fits" advanced:"yes" help:"v5 = [n, 5+classes], score is objectness times class; yolox = v5 in cells of grids; v8 = [4+classes, n] or [n, 4+classes]; not for end2end"`
	KptShape  string  `yaml:"kpt_shape" unset:"that of the metadata in the model's file, else the one that fits" advanced:"yes" example:"17x3" help:"key points of a pose and numbers per key point, such as 17x3"`
	Units     string  `yaml:"units" default:"pixels" words:"pixels normalised" advanced:"yes" help:"unit of coordinates: pixels of the model's input, or normalised to 0..1"`
	Threshold float64 `yaml:"threshold" default:"0.25" above:"0" max:"1" help:"least score of a box"`
	IoU       float64 `yaml:"iou" unset:"0.45; 1 for the tasks end2end" above:"0" advanced:"yes" help:"largest overlap of two boxes of a class: beyond, the box with the lower score is removed; 1 = keep all"`
	Max       int     `yaml:"max" default:"100" min:"1" max:"1000" advanced:"yes" help:"most boxes in a result"`
}

// maskThreshold is the default Threshold of a mask with one class. withDefaults does not fill Threshold in, because
// masks with several classes have no threshold.
const maskThreshold = 0.5

// Masks returns the class of each pixel.
type Masks struct {
	Output     string  `yaml:"output" advanced:"yes" help:"tensor of classes, [classes, h, w] or [h, w]"`
	Activation string  `yaml:"activation" default:"none" words:"none softmax sigmoid" advanced:"yes" help:"activation applied to the raw scores"`
	Threshold  float64 `yaml:"threshold" unset:"0.5" above:"0" max:"1" advanced:"yes" help:"least score of a mask with one class; unused for several classes"`
}

// Keypoints returns points with scores.
type Keypoints struct {
	Output    string  `yaml:"output" advanced:"yes" help:"tensor of points, [k, 2|3], [n, k, 2|3], or heatmaps [k, h, w]"`
	Scores    string  `yaml:"scores" advanced:"yes" help:"tensor of scores, if the model has one"`
	Units     string  `yaml:"units" default:"pixels" words:"pixels normalised" advanced:"yes" help:"unit of coordinates: pixels of the model's input, or normalised to 0..1"`
	Threshold float64 `yaml:"threshold" unset:"none" above:"0" max:"1" advanced:"yes" help:"least score of a point in a result"`
}

// Embedding returns one list of numbers.
type Embedding struct {
	Output    string `yaml:"output" advanced:"yes" help:"tensor with the embedding"`
	Normalise bool   `yaml:"normalise" advanced:"yes" help:"scale the embedding to length 1"`
}

// maxCandidates is the number of boxes of a row for non-maximum suppression: the best boxes above the threshold.
const maxCandidates = 1000

// settings are the settings of one kind of result.
type settings interface {
	build(*finder) (kind, error)
	named() []string // configured names of raw tensors
	labelled() bool  // results have names of classes
}

func (s *Classify) labelled() bool  { return true }
func (s *Boxes) labelled() bool     { return true }
func (s *YOLO) labelled() bool      { return true }
func (s *Masks) labelled() bool     { return false }
func (s *Keypoints) labelled() bool { return false }
func (s *Embedding) labelled() bool { return false }

func (s *Classify) named() []string  { return []string{s.Output} }
func (s *Boxes) named() []string     { return []string{s.Boxes, s.Scores, s.Classes} }
func (s *YOLO) named() []string      { return []string{s.Output} }
func (s *Masks) named() []string     { return []string{s.Output} }
func (s *Keypoints) named() []string { return []string{s.Output, s.Scores} }
func (s *Embedding) named() []string { return []string{s.Output} }

// configuredKinds returns the configured kinds of result, with their names.
func (c Config) configuredKinds() (names []string, all []settings) {
	add := func(name string, set bool, s settings) {
		if set {
			names, all = append(names, name), append(all, s)
		}
	}
	add("classify", c.Classify != nil, c.Classify)
	add("boxes", c.Boxes != nil, c.Boxes)
	add("yolo", c.YOLO != nil, c.YOLO)
	add("masks", c.Masks != nil, c.Masks)
	add("keypoints", c.Keypoints != nil, c.Keypoints)
	add("embedding", c.Embedding != nil, c.Embedding)
	return names, all
}

// Kind names the kind of result; "" = none.
func (c Config) Kind() string {
	names, _ := c.configuredKinds()
	return strings.Join(names, " and ")
}

// Validate returns all errors, each with the path of the setting, such as
// "output.boxes.threshold".
func (c Config) Validate() error {
	errs := setting.TableOf("output", &c).Check()
	bad := func(field, format string, args ...any) {
		errs = append(errs, stream.Errorf(stream.InvalidArgument, field, format, args...))
	}
	names, all := c.configuredKinds()
	switch {
	case len(all) > 1:
		bad("output", "has %s: want one kind of result", strings.Join(names, " and "))
	case c.Labels != "" && len(all) == 0:
		bad("output.labels", "is set, but no kind of result with classes is: set classify, boxes or yolo")
	case c.Labels != "" && !slices.ContainsFunc(all, settings.labelled):
		bad("output.labels", "is set, but results of %s have no names of classes", names[0])
	}
	if y := c.YOLO; y != nil && y.KptShape != "" {
		if _, _, err := parseKptShape(y.KptShape); err != nil {
			bad("output.yolo.kpt_shape", "%w", err)
		}
	}
	return setting.Join(errs...)
}

// withDefaults returns c with its zero fields filled in.
func (c Config) withDefaults() Config {
	setting.DetachCopies(&c)
	setting.Fill(&c)
	return c
}
