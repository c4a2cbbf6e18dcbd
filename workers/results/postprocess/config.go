package postprocess

import (
	"cmp"
	"slices"
	"strings"

	"millrace/stream"
)

// Config names the result of a model. The zero Config is none: tensors as they
// are. Configs are comparable with ==.
type Config struct {
	Kind string // none (or ""), classify, boxes, yolo, masks, keypoints or embedding

	// Names of raw tensors; "" = found by its shape. Boxes and Classes are of
	// kind boxes, Scores is of boxes and keypoints, Output of all others.
	Output                 string
	Boxes, Scores, Classes string

	Labels     string  // file with a name per line; "" = none (classify, boxes, yolo)
	Threshold  float64 // least score, 0..1; 0 = 0.5 for boxes and masks of one channel, 0.25 for yolo, none for keypoints
	IoU        float64 // overlap past which the lower of two boxes of one class is left out; 0 = 0.5 (yolo 0.45); >= 1 = never
	Max        int     // boxes at most; 0 = 100
	TopK       int     // classes answered by classify; 0 = 5
	Format     string  // of raw boxes: xyxy (or ""), xywh or cxcywh
	Units      string  // of raw coordinates: pixels of the model's input (or ""), or normalised to 0..1 (boxes, yolo, keypoints)
	Activation string  // of raw scores: none (or ""), softmax or sigmoid (classify, boxes, masks)
	Background bool    // class 0 of boxes is the background: never answered, and the others are counted from 0 after it
	Layout     string  // of yolo: v5 ([n, 5+classes], objectness times class) or v8 ([4+classes, n]); "" = told by the shape
	Normalise  bool    // embeddings to length 1
}

// The bounds of what is answered, and of what goes through non-maximum
// suppression: the best of those above the threshold.
const (
	maxBoxes   = 1000
	maxTopK    = 1000
	candidates = 1000
)

// settings are the keys of each kind.
var settings = map[string][]string{
	"":          nil,
	"none":      nil,
	"classify":  {"output", "labels", "top_k", "activation"},
	"boxes":     {"boxes", "scores", "classes", "labels", "threshold", "iou", "max", "format", "units", "activation", "background"},
	"yolo":      {"output", "labels", "threshold", "iou", "max", "units", "layout"},
	"masks":     {"output", "threshold", "activation"},
	"keypoints": {"output", "scores", "threshold", "units"},
	"embedding": {"output", "normalise"},
}

// Validate names the first setting that is unknown, out of bounds or of another
// kind of result: "output", "output.labels", or a key below the kind, such as
// "output.boxes.threshold".
func (c Config) Validate() error {
	keys, known := settings[c.Kind]
	if !known {
		return stream.Errorf(stream.InvalidArgument, "output", "%q is no kind of result: it is none, classify, boxes, yolo, masks, keypoints or embedding", c.Kind)
	}
	for _, s := range []struct {
		key string
		set bool
	}{
		{"output", c.Output != ""}, {"boxes", c.Boxes != ""}, {"scores", c.Scores != ""}, {"classes", c.Classes != ""},
		{"labels", c.Labels != ""}, {"threshold", c.Threshold != 0}, {"iou", c.IoU != 0}, {"max", c.Max != 0},
		{"top_k", c.TopK != 0}, {"format", c.Format != ""}, {"units", c.Units != ""}, {"activation", c.Activation != ""},
		{"background", c.Background}, {"layout", c.Layout != ""}, {"normalise", c.Normalise},
	} {
		switch {
		case !s.set || slices.Contains(keys, s.key):
		case len(keys) == 0:
			return stream.Errorf(stream.InvalidArgument, "output", "%s is set, and the tensors are answered as they are: choose classify, boxes, yolo, masks, keypoints or embedding", s.key)
		default:
			return c.bad(s.key, "is no setting of %s: it has %s", c.Kind, strings.Join(keys, ", "))
		}
	}
	switch {
	case !(c.Threshold >= 0 && c.Threshold <= 1):
		return c.bad("threshold", "%v is not between 0 and 1", c.Threshold)
	case !(c.IoU >= 0):
		return c.bad("iou", "%v is not 0 or more", c.IoU)
	case c.Max < 0 || c.Max > maxBoxes:
		return c.bad("max", "%d is not between 1 and %d", c.Max, maxBoxes)
	case c.TopK < 0 || c.TopK > maxTopK:
		return c.bad("top_k", "%d is not between 1 and %d", c.TopK, maxTopK)
	}
	for _, s := range []struct {
		key, value string
		of         []string
	}{
		{"format", c.Format, []string{"xyxy", "xywh", "cxcywh"}},
		{"units", c.Units, []string{"pixels", "normalised"}},
		{"activation", c.Activation, []string{"none", "softmax", "sigmoid"}},
		{"layout", c.Layout, []string{"v5", "v8"}},
	} {
		if s.value != "" && !slices.Contains(s.of, s.value) {
			return c.bad(s.key, "%q is none of %s", s.value, strings.Join(s.of, ", "))
		}
	}
	return nil
}

// withDefaults fills in what is not set, but for the threshold of masks, which
// those of one class have alone.
func (c Config) withDefaults() Config {
	threshold := map[string]float64{"boxes": 0.5, "yolo": 0.25}
	iou := 0.5
	if c.Kind == "yolo" {
		iou = 0.45
	}
	c.Threshold = cmp.Or(c.Threshold, threshold[c.Kind])
	c.IoU = cmp.Or(c.IoU, iou)
	c.Max = cmp.Or(c.Max, 100)
	c.TopK = cmp.Or(c.TopK, 5)
	c.Format = cmp.Or(c.Format, "xyxy")
	c.Units = cmp.Or(c.Units, "pixels")
	c.Activation = cmp.Or(c.Activation, "none")
	return c
}

func (c Config) bad(key, format string, args ...any) error {
	field := "output." + c.Kind + "." + key
	if key == "labels" {
		field = "output.labels"
	}
	return stream.Errorf(stream.InvalidArgument, field, format, args...)
}
