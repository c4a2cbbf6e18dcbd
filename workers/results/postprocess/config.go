package postprocess

import (
	"slices"
	"strings"

	"millrace/internal/setting"
	"millrace/stream"
)

// Config is the result of a model: the one kind of result that is set. Without one there
// is no such stage. Zero fields of a kind take their defaults. A raw tensor
// that is not named is found by its shape.
type Config struct {
	Labels    string     `yaml:"labels" path:"file" help:"a file with the name of a class per line (classify, boxes, yolo)"`
	Classify  *Classify  `yaml:"classify"`
	Boxes     *Boxes     `yaml:"boxes"`
	YOLO      *YOLO      `yaml:"yolo"`
	Masks     *Masks     `yaml:"masks"`
	Keypoints *Keypoints `yaml:"keypoints"`
	Embedding *Embedding `yaml:"embedding"`
}

// Classify answers the classes with the highest scores.
type Classify struct {
	Output     string `yaml:"output" help:"the tensor of scores, a class each"`
	TopK       int    `yaml:"top_k" default:"5" min:"1" max:"1000" help:"classes answered"`
	Activation string `yaml:"activation" default:"none" words:"none softmax sigmoid" help:"of the raw scores"`
}

// Boxes answers boxes with scores and classes.
type Boxes struct {
	Boxes      string  `yaml:"boxes" help:"the tensor of boxes, [n, 4]"`
	Scores     string  `yaml:"scores" help:"the tensor of scores, [n] or [n, classes]"`
	Classes    string  `yaml:"classes" help:"the tensor of classes, [n], where scores has none"`
	Format     string  `yaml:"format" default:"xyxy" words:"xyxy xywh cxcywh" help:"of the raw boxes"`
	Units      string  `yaml:"units" default:"pixels" words:"pixels normalised" help:"of coordinates: pixels of the model's input, or normalised to 0..1"`
	Activation string  `yaml:"activation" default:"none" words:"none softmax sigmoid" help:"of the raw scores"`
	Background bool    `yaml:"background" help:"class 0 is the background and never answered; the others are counted from 0 after it"`
	Threshold  float64 `yaml:"threshold" default:"0.5" above:"0" max:"1" help:"least score"`
	IoU        float64 `yaml:"iou" default:"0.5" above:"0" help:"overlap past which the lower of two boxes of a class is left out; 1 = never"`
	Max        int     `yaml:"max" default:"100" min:"1" max:"1000" help:"boxes at most"`
}

// YOLO answers what Boxes does, of models of the YOLO family.
type YOLO struct {
	Output    string  `yaml:"output" help:"the tensor of boxes with their scores"`
	Layout    string  `yaml:"layout" words:"v5 v8" unset:"told by the shape where it can be" help:"v5 is [n, 5+classes], objectness times class; v8 is [4+classes, n]"`
	Units     string  `yaml:"units" default:"pixels" words:"pixels normalised" help:"of coordinates: pixels of the model's input, or normalised to 0..1"`
	Threshold float64 `yaml:"threshold" default:"0.25" above:"0" max:"1" help:"least score"`
	IoU       float64 `yaml:"iou" default:"0.45" above:"0" help:"overlap past which the lower of two boxes of a class is left out; 1 = never"`
	Max       int     `yaml:"max" default:"100" min:"1" max:"1000" help:"boxes at most"`
}

// Masks answers the class of each pixel.
type Masks struct {
	Output     string  `yaml:"output" help:"the tensor of classes, [classes, h, w] or [h, w]"`
	Activation string  `yaml:"activation" default:"none" words:"none softmax sigmoid" help:"of the raw scores"`
	Threshold  float64 `yaml:"threshold" unset:"0.5" above:"0" max:"1" help:"least score of a mask of one class; others have none"`
}

// Keypoints answers points with scores.
type Keypoints struct {
	Output    string  `yaml:"output" help:"the tensor of points, [k, 2|3], [n, k, 2|3], or heatmaps [k, h, w]"`
	Scores    string  `yaml:"scores" help:"the tensor of scores, if there is one"`
	Units     string  `yaml:"units" default:"pixels" words:"pixels normalised" help:"of coordinates: pixels of the model's input, or normalised to 0..1"`
	Threshold float64 `yaml:"threshold" unset:"none" above:"0" max:"1" help:"least score of an answer"`
}

// Embedding answers one list of numbers.
type Embedding struct {
	Output    string `yaml:"output" help:"the tensor"`
	Normalise bool   `yaml:"normalise" help:"to length 1"`
}

// candidates bounds what goes through non-maximum suppression: the best of those
// above the threshold.
const candidates = 1000

// settings are those of one kind of result.
type settings interface {
	build(*finder) (kind, error)
	named() []string // raw tensors that are set by name
	labelled() bool  // it answers names of classes
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

// chosen returns the kinds of result that are set, with their names.
func (c Config) chosen() (names []string, all []settings) {
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
	names, _ := c.chosen()
	return strings.Join(names, " and ")
}

// Validate says everything that is wrong, each error with the path of the setting,
// such as "output.boxes.threshold".
func (c Config) Validate() error {
	errs := setting.Of("output", &c).Check()
	bad := func(field, format string, args ...any) {
		errs = append(errs, stream.Errorf(stream.InvalidArgument, field, format, args...))
	}
	names, all := c.chosen()
	switch {
	case len(all) > 1:
		bad("output", "names %s: want one kind of result", strings.Join(names, " and "))
	case c.Labels != "" && len(all) == 0:
		bad("output.labels", "is set, and the tensors are answered as they are: choose classify, boxes or yolo")
	case c.Labels != "" && !slices.ContainsFunc(all, settings.labelled):
		bad("output.labels", "is set, and %s has no names of classes", names[0])
	}
	return setting.Join(errs...)
}

// withDefaults returns c with its zero fields filled in.
func (c Config) withDefaults() Config {
	setting.Own(&c)
	setting.Fill(&c)
	return c
}
