package server

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/results/gate"
	"millrace/workers/results/postprocess"
	"millrace/workers/results/tracking"
)

// ModelConfig is one model of the configuration. A zero field takes the default
// of its worker kind, or that of package workers.
type ModelConfig struct {
	Name      string // of the endpoint
	Source    string // a kind of worker, or what its form tells apart; see forms
	Version   string
	Instances int // workers
	Batching  BatchingConfig
	Input     InputConfig
	Window    WindowConfig       // windows of its streams, as its input
	Output    postprocess.Config // what is made of the worker's outputs
	Track     TrackConfig        // ids for its boxes
	Gate      GateConfig         // which frames are worth a run
	Stream    StreamConfig
	Limits    ModelLimits
	MaxFlows  int           // streams and one-shot callers at once
	Params    stream.Params // for the worker; nested keys are joined by dots

	results []string // kinds of result that settings of Output named
	dir     string   // that a relative path in Source starts from; "" = the working directory
}

// BatchingConfig is how batches are formed.
type BatchingConfig struct {
	Kind     string   // adaptive, soft, hard or deadline
	MaxSize  int      // rows
	MaxDelay Duration // of soft
	Slack    Duration // of deadline
	Buffers  int      // batches open or running at once
	Memory   string   // heap or c
}

// TrackConfig says whether and how the boxes of a stream's frames are followed.
type TrackConfig struct {
	On      bool
	IoU     float64
	MinHits int
	MaxAge  Duration
	Score   float64
	Class   bool
}

// GateConfig says which frames of a stream are worth a run.
type GateConfig struct {
	Changed float64 // share of the picture; 0 = all frames are
	Refresh Duration
}

// InputConfig is how frames become the model's input.
type InputConfig struct {
	Image *stream.ImageSpec
}

// WindowConfig says which windows of its streams a model looks at.
type WindowConfig struct {
	Length int // samples, rows or pictures
	Hop    int // from the start of a window to that of the next
}

// StreamConfig holds the defaults of the model's streams; clients choose for
// themselves.
type StreamConfig struct {
	Policy     string // latest or every
	MaxAgeMS   int
	DeadlineMS int
	MaxFPS     float64
	Window     int
	Priority   string // normal, high or low
}

// ModelLimits bound what the model's workers may do.
type ModelLimits struct {
	Start, Run  Duration
	Quarantined int
	Restarts    int
	IdleState   Duration
}

// modelKeys are the settings of a model. Any other key is a parameter of its
// worker.
var modelKeys = []key[ModelConfig]{
	{"name", "of the endpoint", func(m *ModelConfig) any { return &m.Name }},
	{"source", "a kind of worker, or what to load", func(m *ModelConfig) any { return &m.Source }},
	{"version", "of the model", func(m *ModelConfig) any { return &m.Version }},
	{"instances", "workers; a request may ask for 64", func(m *ModelConfig) any { return &m.Instances }},
	{"max_flows", "streams and one-shot callers at once", func(m *ModelConfig) any { return &m.MaxFlows }},
	{"batching.kind", "adaptive, soft, hard or deadline", func(m *ModelConfig) any { return &m.Batching.Kind }},
	{"batching.max_size", "rows of a batch: at most 4096, and the batches of all models take at most half of memory.budget, for as long as they are loaded. What an ONNX model computes between its inputs and outputs grows with it too and is not counted", func(m *ModelConfig) any { return &m.Batching.MaxSize }},
	{"batching.max_delay", "of soft: after the first frame; a request may ask for 1m", func(m *ModelConfig) any { return &m.Batching.MaxDelay }},
	{"batching.slack", "of deadline: kept free before the nearest deadline, for runs that take longer than predicted", func(m *ModelConfig) any { return &m.Batching.Slack }},
	{"batching.buffers", "batches open or running at once, at most 4096", func(m *ModelConfig) any { return &m.Batching.Buffers }},
	{"batching.memory", "heap or c", func(m *ModelConfig) any { return &m.Batching.Memory }},
	{"input.image.width", "pixels", func(m *ModelConfig) any { return &m.image().Width }},
	{"input.image.height", "pixels", func(m *ModelConfig) any { return &m.image().Height }},
	{"input.image.color", "RGB, BGR or GRAY", func(m *ModelConfig) any { return &m.image().Color }},
	{"input.image.layout", "NHWC or NCHW", func(m *ModelConfig) any { return &m.image().Layout }},
	{"input.image.fit", "stretch or letterbox", func(m *ModelConfig) any { return &m.image().Fit }},
	{"input.image.scale", "(pixel*scale - mean) / std, one number or three", func(m *ModelConfig) any { return &m.image().Scale }},
	{"input.image.mean", "one number or three", func(m *ModelConfig) any { return &m.image().Mean }},
	{"input.image.std", "one number or three", func(m *ModelConfig) any { return &m.image().Std }},
	{"window.length", "samples, rows or pictures that are one input; those of the model's shape", func(m *ModelConfig) any { return &m.Window.Length }},
	{"window.hop", "of them, to the start of the next window; the length", func(m *ModelConfig) any { return &m.Window.Hop }},
	{"output.labels", "a file with the name of a class per line (classify, boxes, yolo)", func(m *ModelConfig) any { return &m.Output.Labels }},
	{"output.track", "give the boxes of a stream ids that stay with what they show, as output ids", func(m *ModelConfig) any { return &m.Track.On }},
	{"output.track_iou", "least overlap of a prediction and its box (0.2)", func(m *ModelConfig) any { return &m.Track.IoU }},
	{"output.track_hits", "boxes in a row until there is an id (2)", func(m *ModelConfig) any { return &m.Track.MinHits }},
	{"output.track_age", "an id ends when it was not seen for longer (500ms)", func(m *ModelConfig) any { return &m.Track.MaxAge }},
	{"output.track_score", "least score of a box that begins to be followed; any box continues (0)", func(m *ModelConfig) any { return &m.Track.Score }},
	{"output.track_class", "an id stays with the class it began with: for things that cross, and a model that is seldom wrong", func(m *ModelConfig) any { return &m.Track.Class }},
	{"output.classify.output", "the tensor of scores, a class each", func(m *ModelConfig) any { return &m.output("classify").Output }},
	{"output.classify.top_k", "classes answered (5)", func(m *ModelConfig) any { return &m.output("classify").TopK }},
	{"output.classify.activation", "of the scores: none, softmax or sigmoid", func(m *ModelConfig) any { return &m.output("classify").Activation }},
	{"output.boxes.boxes", "the tensor of boxes, [n, 4]", func(m *ModelConfig) any { return &m.output("boxes").Boxes }},
	{"output.boxes.scores", "the tensor of scores, [n] or [n, classes]", func(m *ModelConfig) any { return &m.output("boxes").Scores }},
	{"output.boxes.classes", "the tensor of classes, [n], where scores has none", func(m *ModelConfig) any { return &m.output("boxes").Classes }},
	{"output.boxes.format", "xyxy, xywh or cxcywh", func(m *ModelConfig) any { return &m.output("boxes").Format }},
	{"output.boxes.units", "pixels of the model's input, or normalised to 0..1", func(m *ModelConfig) any { return &m.output("boxes").Units }},
	{"output.boxes.activation", "of the scores: none, softmax or sigmoid", func(m *ModelConfig) any { return &m.output("boxes").Activation }},
	{"output.boxes.background", "class 0 is the background and never answered", func(m *ModelConfig) any { return &m.output("boxes").Background }},
	{"output.boxes.threshold", "least score (0.5)", func(m *ModelConfig) any { return &m.output("boxes").Threshold }},
	{"output.boxes.iou", "overlap past which the lower of two boxes of a class is left out (0.5); 1 = never", func(m *ModelConfig) any { return &m.output("boxes").IoU }},
	{"output.boxes.max", "boxes at most (100)", func(m *ModelConfig) any { return &m.output("boxes").Max }},
	{"output.yolo.output", "the tensor of boxes with their scores", func(m *ModelConfig) any { return &m.output("yolo").Output }},
	{"output.yolo.layout", "v5 ([n, 5+classes]) or v8 ([4+classes, n]); told by the shape where it can be", func(m *ModelConfig) any { return &m.output("yolo").Layout }},
	{"output.yolo.units", "pixels of the model's input, or normalised to 0..1", func(m *ModelConfig) any { return &m.output("yolo").Units }},
	{"output.yolo.threshold", "least score (0.25)", func(m *ModelConfig) any { return &m.output("yolo").Threshold }},
	{"output.yolo.iou", "overlap past which the lower of two boxes of a class is left out (0.45); 1 = never", func(m *ModelConfig) any { return &m.output("yolo").IoU }},
	{"output.yolo.max", "boxes at most (100)", func(m *ModelConfig) any { return &m.output("yolo").Max }},
	{"output.masks.output", "the tensor of classes, [classes, h, w] or [h, w]", func(m *ModelConfig) any { return &m.output("masks").Output }},
	{"output.masks.activation", "none, softmax or sigmoid", func(m *ModelConfig) any { return &m.output("masks").Activation }},
	{"output.masks.threshold", "of a mask with one channel (0.5)", func(m *ModelConfig) any { return &m.output("masks").Threshold }},
	{"output.keypoints.output", "the tensor of points, [k, 2|3], [n, k, 2|3], or heatmaps [k, h, w]", func(m *ModelConfig) any { return &m.output("keypoints").Output }},
	{"output.keypoints.scores", "the tensor of scores, if there is one", func(m *ModelConfig) any { return &m.output("keypoints").Scores }},
	{"output.keypoints.units", "pixels of the model's input, or normalised to 0..1", func(m *ModelConfig) any { return &m.output("keypoints").Units }},
	{"output.keypoints.threshold", "least score of an answer (none)", func(m *ModelConfig) any { return &m.output("keypoints").Threshold }},
	{"output.embedding.output", "the tensor", func(m *ModelConfig) any { return &m.output("embedding").Output }},
	{"output.embedding.normalise", "to length 1", func(m *ModelConfig) any { return &m.output("embedding").Normalise }},
	{"gate.changed", "the share of the picture, 0 to 1, that must change for a run; a frame with less gets the last result again (0: every frame runs)", func(m *ModelConfig) any { return &m.Gate.Changed }},
	{"gate.refresh", "a run at least so often, however still it is (1s)", func(m *ModelConfig) any { return &m.Gate.Refresh }},
	{"stream.policy", "latest or every", func(m *ModelConfig) any { return &m.Stream.Policy }},
	{"stream.max_age_ms", "a frame that would be answered older is dropped", func(m *ModelConfig) any { return &m.Stream.MaxAgeMS }},
	{"stream.deadline_ms", "the same, for each frame", func(m *ModelConfig) any { return &m.Stream.DeadlineMS }},
	{"stream.max_fps", "frames that come sooner are dropped", func(m *ModelConfig) any { return &m.Stream.MaxFPS }},
	{"stream.window", "frames on their way at once", func(m *ModelConfig) any { return &m.Stream.Window }},
	{"stream.priority", "normal, high or low", func(m *ModelConfig) any { return &m.Stream.Priority }},
	{"limits.start", "time that a worker may take to start", func(m *ModelConfig) any { return &m.Limits.Start }},
	{"limits.run", "time that a batch may take; a request may ask for 10m", func(m *ModelConfig) any { return &m.Limits.Run }},
	{"limits.quarantined", "hung workers at once", func(m *ModelConfig) any { return &m.Limits.Quarantined }},
	{"limits.restarts", "of one worker in a row", func(m *ModelConfig) any { return &m.Limits.Restarts }},
	{"limits.idle_state", "a silent stream's state is released after it", func(m *ModelConfig) any { return &m.Limits.IdleState }},
}

func (m *ModelConfig) image() *stream.ImageSpec {
	if m.Input.Image == nil {
		m.Input.Image = &stream.ImageSpec{}
	}
	return m.Input.Image
}

// output notes that settings choose a kind of result, and returns where they go.
func (m *ModelConfig) output(kind string) *postprocess.Config {
	if !slices.Contains(m.results, kind) {
		m.results = append(m.results, kind)
	}
	m.Output.Kind = kind
	return &m.Output
}

// choose is a section given as a name: "output: yolo" and "input: image" take
// all defaults. It reports whether the section can be.
func (m *ModelConfig) choose(section, name string) bool {
	switch {
	case section == "output" && postprocess.Config{Kind: name}.Validate() == nil:
		m.output(name)
	case section == "input" && name == "image":
		m.image()
	case section == "input" && name == "tensors":
	default:
		return false
	}
	return true
}

// set sets a key of a model; path is for errors. What is no key is a parameter.
func (m *ModelConfig) set(path, name string, vs []scalar) error {
	if i := slices.IndexFunc(modelKeys, func(k key[ModelConfig]) bool { return k.path == name }); i >= 0 {
		if err := assign(modelKeys[i].at(m), vs); err != nil {
			return fault(path, "%w", err)
		}
		return nil
	}
	if len(vs) == 1 && m.choose(name, vs[0].text) {
		return nil
	}
	// Inside a section of ours a stranger is a misspelling, not a parameter.
	if section, _, nested := strings.Cut(name, "."); nested {
		if names := below(paths(modelKeys), section+"."); len(names) > 0 && section != "input" || strings.HasPrefix(name, "input.image.") {
			return unknown(path, name, paths(modelKeys))
		}
	}
	if m.Params == nil {
		m.Params = stream.Params{}
	}
	var v any
	switch len(vs) {
	case 0:
		return fault(path, "is an empty list")
	case 1:
		v = vs[0].param()
	default:
		texts := make([]string, len(vs))
		for i := range vs {
			texts[i] = vs[i].text
		}
		v = strings.Join(texts, ",")
	}
	m.Params[name] = v
	return nil
}

// unknown refuses a key with the nearest one and what there is beside it.
func unknown(path, name string, all []string) error {
	section, last := "", name
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		section, last = name[:i+1], name[i+1:]
	}
	names := below(all, section)
	hint := suggest(last, names)
	if hint == "" && len(names) > 0 {
		hint = ": there are " + strings.Join(names, ", ")
	}
	return fault(path, "is no setting%s", hint)
}

// ParseModel reads NAME=SOURCE[,key=value...]. Keys are those of a model in the
// file, nested ones joined by dots; a list is written [a,b,c], and quotes (")
// keep commas.
func ParseModel(spec string) (ModelConfig, error) {
	var m ModelConfig
	parts, err := splitSpec(spec)
	if err != nil {
		return m, fault("model", "%q: %w", spec, err)
	}
	name, source, _ := strings.Cut(parts[0], "=")
	m.Name, m.Source = strings.TrimSpace(name), unquote(source).text
	if m.Name == "" || m.Source == "" {
		return m, fault("model", "%q is not NAME=SOURCE[,key=value...]", spec)
	}
	seen := map[string]bool{}
	for _, part := range parts[1:] {
		key, value, ok := strings.Cut(part, "=")
		if key = strings.TrimSpace(key); !ok || key == "" {
			return m, fault("model "+m.Name, "%q is not key=value", part)
		}
		path := m.Name + "." + key
		switch {
		case key == "name" || key == "source":
			return m, fault(path, "stands in front already: NAME=SOURCE")
		case seen[key]:
			return m, fault(path, "is given twice")
		case strings.Trim(key, ".") != key || strings.Contains(key, ".."):
			return m, fault(path, "is no setting")
		}
		seen[key] = true
		if err := m.set(path, key, values(value)); err != nil {
			return m, err
		}
	}
	return m, nil
}

// splitSpec splits at commas outside of brackets and quotes.
func splitSpec(s string) (parts []string, err error) {
	quoted, depth, from := false, 0, 0
	for i, r := range s {
		switch {
		case r == '"':
			quoted = !quoted
		case quoted:
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == ',' && depth == 0:
			parts, from = append(parts, s[from:i]), i+1
		}
		if depth < 0 || depth > 1 {
			return nil, fmt.Errorf("has brackets that do not match")
		}
	}
	if quoted || depth != 0 {
		return nil, fmt.Errorf("has a quote or bracket without its end")
	}
	return append(parts, s[from:]), nil
}

func values(s string) []scalar {
	s = strings.TrimSpace(s)
	if len(s) < 2 || s[0] != '[' || s[len(s)-1] != ']' {
		return []scalar{unquote(s)}
	}
	var vs []scalar
	for _, p := range strings.Split(s[1:len(s)-1], ",") {
		vs = append(vs, unquote(p))
	}
	return vs
}

func unquote(s string) scalar {
	s = strings.TrimSpace(s)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return scalar{text: s[1 : len(s)-1], quoted: true}
	}
	return scalar{text: s}
}

// ModelFor is the model of `millrace serve SOURCE`: named after the file, folder
// or kind.
func ModelFor(source string) ModelConfig {
	name := filepath.Base(filepath.Clean(source))
	if _, ok := workers.Lookup(source); ok {
		name = source
	}
	if i := strings.IndexByte(name, '.'); i > 0 {
		name = name[:i]
	}
	return ModelConfig{Name: name, Source: source}
}

// forms tell sources apart that are no kind of worker themselves. The kind need
// not be part of the program: then the error says so.
var forms = []struct {
	what, kind string
	is         func(source string) bool
	path       bool
}{
	{"an address", "remote", func(s string) bool { return strings.Contains(s, "://") }, false},
	{"an ONNX model", "onnx", suffix(".onnx"), true},
	{"a Python service", "python", suffix(".py"), true},
	{"a folder", "repository", isDir, true},
}

func suffix(end string) func(string) bool {
	return func(s string) bool { return strings.EqualFold(filepath.Ext(s), end) }
}

func isDir(s string) bool {
	st, err := os.Stat(s)
	return err == nil && st.IsDir() || strings.HasSuffix(s, string(filepath.Separator))
}

// kind tells which worker loads the source, and what it is given to load.
func (m ModelConfig) kind() (kind, load string, err error) {
	if m.Source == "" {
		return "", "", fmt.Errorf("is missing: want a kind of worker (%s) or a file", kindNames())
	}
	if _, ok := workers.Lookup(m.Source); ok {
		return m.Source, "", nil
	}
	at := m.Source
	if m.dir != "" && !filepath.IsAbs(at) && !strings.Contains(at, "://") {
		at = filepath.Join(m.dir, at)
	}
	for _, f := range forms {
		if !f.is(at) {
			continue
		}
		if _, ok := workers.Lookup(f.kind); !ok {
			return "", "", fmt.Errorf("%q is %s, and this program has no worker for it: there are %s", m.Source, f.what, kindNames())
		}
		if f.path {
			if _, err := os.Stat(at); err != nil {
				return "", "", fmt.Errorf("%q cannot be read: %w", m.Source, err)
			}
		}
		return f.kind, at, nil
	}
	if strings.ContainsAny(m.Source, `/\.`) {
		return "", "", fmt.Errorf("%q is nothing that can be loaded here: want a kind of worker (%s), a .onnx or .py file, a folder or an address", m.Source, kindNames())
	}
	var names []string
	for _, k := range workers.Kinds() {
		names = append(names, k.Name)
	}
	return "", "", fmt.Errorf("%q is no kind of worker%s: there are %s", m.Source, suggest(m.Source, names), kindNames())
}

func kindNames() string {
	var names []string
	for _, k := range workers.Kinds() {
		names = append(names, k.Name)
	}
	return strings.Join(names, ", ")
}

// Worker translates the model to what the manager loads. Errors name the key
// inside the model.
func (m ModelConfig) Worker() (workers.Config, error) {
	kind, source, err := m.kind()
	if err != nil {
		return workers.Config{}, fault("source", "%w", err)
	}
	c := workers.Config{
		Name: m.Name, Version: m.Version, Kind: kind, Source: source, Params: maps.Clone(m.Params),
		Instances: m.Instances, MaxFlows: m.MaxFlows,
		Window: workers.Window{Length: m.Window.Length, Hop: m.Window.Hop},
		Batching: workers.Batching{
			Kind: m.Batching.Kind, MaxSize: m.Batching.MaxSize,
			Buffers: m.Batching.Buffers, Memory: batching.Backend(m.Batching.Memory),
		},
		Policy: stream.Policy{
			Mode: stream.Mode(m.Stream.Policy), MaxAge: time.Duration(m.Stream.MaxAgeMS) * time.Millisecond,
			Deadline: time.Duration(m.Stream.DeadlineMS) * time.Millisecond, MaxFPS: m.Stream.MaxFPS, Window: m.Stream.Window,
		},
		Limits: workers.Limits{
			Start: time.Duration(m.Limits.Start), Run: time.Duration(m.Limits.Run), Quarantined: m.Limits.Quarantined,
			Restarts: m.Limits.Restarts, IdleState: time.Duration(m.Limits.IdleState),
		},
	}
	track := tracking.Settings{Track: m.Track.On, Config: tracking.Config{IoU: m.Track.IoU, MinHits: m.Track.MinHits, MaxAge: time.Duration(m.Track.MaxAge), Score: m.Track.Score, SameClass: m.Track.Class}}
	if track != (tracking.Settings{}) {
		c.Parts = append(c.Parts, &track)
	}
	if m.Gate != (GateConfig{}) {
		c.Parts = append(c.Parts, &gate.Settings{Changed: m.Gate.Changed, Refresh: time.Duration(m.Gate.Refresh)})
	}
	if m.Output != (postprocess.Config{}) {
		output := m.Output
		if l := output.Labels; l != "" && m.dir != "" && !filepath.IsAbs(l) {
			output.Labels = filepath.Join(m.dir, l)
		}
		c.Parts = append(c.Parts, &output)
	}
	if d := m.Batching.MaxDelay; d != 0 {
		c.Parts = append(c.Parts, &batching.SoftSettings{MaxDelay: time.Duration(d)})
	}
	if d := m.Batching.Slack; d != 0 {
		c.Parts = append(c.Parts, &batching.DeadlineSettings{Slack: time.Duration(d)})
	}
	switch m.Stream.Priority {
	case "", "normal":
	case "high":
		c.Policy.Priority = stream.High
	case "low":
		c.Policy.Priority = stream.Low
	default:
		return c, fault("stream.priority", "%q is no priority: want normal, high or low", m.Stream.Priority)
	}
	if len(m.results) > 1 {
		return c, fault("output", "names %s: want one kind of result", strings.Join(m.results, " and "))
	}
	if m.Input.Image != nil {
		image := *m.Input.Image
		c.Image = &image
	}
	return c.WithDefaults(), nil
}
