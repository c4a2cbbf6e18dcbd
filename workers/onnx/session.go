//go:build cgo

package onnx

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	ort "github.com/yalue/onnxruntime_go"

	"millrace/stream"
)

var levels = map[string]ort.GraphOptimizationLevel{
	"none":     ort.GraphOptimizationLevelDisableAll,
	"basic":    ort.GraphOptimizationLevelEnableBasic,
	"extended": ort.GraphOptimizationLevelEnableExtended,
	"all":      ort.GraphOptimizationLevelEnableAll,
}

// session is a loaded model, run by any number of workers at once.
type session struct {
	*ort.DynamicAdvancedSession
	inputs, outputs []ort.InputOutputInfo
	scalars         map[string]bool // outputs that are scalars
	metadata        map[string]string
	others          []string // outputs other than tensors

	id     identity
	users  int // under sessions
	opened sync.Once
	err    error // of opening
}

// identity identifies a session: a replaced file is another model. The time of modification is too coarse, and
// copying tools set the time, so identity has more fields.
type identity struct {
	path             string
	device, inode    uint64
	size             int64
	written, changed syscall.Timespec
	digest           string // of the file, and of the files with the model's weights
	castToFP32       string // names of the outputs that are computed as FP32, with "\x00" between them
	Session
}

// sessions are the open sessions.
var sessions = struct {
	sync.Mutex
	m map[identity]*session
}{m: map[identity]*session{}}

// acquire returns the session of a file, perhaps opened by other workers already. castToFP32 are the outputs computed
// as FP32.
func acquire(path, digest string, o Session, wide ...string) (*session, error) {
	if _, err := Library(); err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, stream.Errorf(stream.NotFound, "source", "%s: %w", path, errors.Unwrap(err))
	case !st.Mode().IsRegular():
		return nil, stream.Errorf(stream.InvalidArgument, "source", "%s is not a file", path)
	case st.Size() == 0:
		return nil, stream.Errorf(stream.InvalidArgument, "source", "%s is empty", path)
	}
	sys := st.Sys().(*syscall.Stat_t)
	id := identity{path, sys.Dev, sys.Ino, sys.Size, sys.Mtim, sys.Ctim, digest, strings.Join(wide, "\x00"), o}
	sessions.Lock()
	s := sessions.m[id]
	if s == nil {
		s = &session{id: id}
		sessions.m[id] = s
	}
	s.users++
	sessions.Unlock()
	// Without the lock, so that a slow file does not delay other models.
	s.opened.Do(func() { s.err = s.open() })
	if s.err != nil {
		_ = s.release()
		return nil, s.err
	}
	return s, nil
}

// release undoes acquire; the last release closes the session.
func (s *session) release() error {
	sessions.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(sessions.m, s.id)
	}
	sessions.Unlock()
	if !last || s.DynamicAdvancedSession == nil {
		return nil
	}
	err := s.Destroy()
	trim()
	return err
}

func (s *session) open() error {
	path := s.id.path
	// The names must be known before the session is made, so a first session, without optimisations, reads the names.
	plain, err := Session{Threads: 1, InterThreads: 1, Optimization: "none"}.native()
	if err != nil {
		return err
	}
	defer func() { _ = plain.Destroy() }()
	// the first session never runs
	if err = plain.AddSessionConfigEntry("session.disable_prepacking", "1"); err != nil {
		return stream.Errorf(stream.Internal, "source", "%w", err)
	}
	if s.inputs, s.outputs, err = ort.GetInputOutputInfoWithOptions(path, plain); err != nil {
		return fileError(path, err)
	}
	s.outputs, s.others = tensorsOf(s.outputs)
	if slices.ContainsFunc(s.outputs, func(o ort.InputOutputInfo) bool { return len(o.Dimensions) == 0 }) {
		s.scalars = scalarOutputs(path)
	}
	names := func(of []ort.InputOutputInfo) []string {
		out := make([]string, len(of))
		for i := range of {
			out[i] = of[i].Name
		}
		return out
	}
	native, err := s.id.Session.native()
	if err != nil {
		return err
	}
	defer func() { _ = native.Destroy() }()
	inputs, outputs := names(s.inputs), names(s.outputs)
	if s.id.castToFP32 == "" {
		s.DynamicAdvancedSession, err = ort.NewDynamicAdvancedSession(path, inputs, outputs, native)
	} else {
		wide := strings.Split(s.id.castToFP32, "\x00")
		for i, name := range outputs {
			if slices.Contains(wide, name) {
				outputs[i] = widePrefix + name
			}
		}
		s.DynamicAdvancedSession, err = widened(path, wide, inputs, outputs, native)
	}
	if err != nil {
		return fileError(path, err)
	}
	s.metadata = s.readMetadata()
	return nil
}

// maxMetadata is the largest kept text of the metadata.
const maxMetadata = 1 << 20

// readMetadata returns the exporter's metadata of the file, without too large texts, such as whole graphs.
func (s *session) readMetadata() map[string]string {
	m, err := s.GetModelMetadata()
	if err != nil {
		return nil
	}
	defer func() { _ = m.Destroy() }()
	keys, _ := m.GetCustomMetadataMapKeys() // without keys there are no metadata
	all := map[string]string{}
	for _, k := range keys {
		if v, ok, err := m.LookupCustomMetadataMap(k); err == nil && ok && len(v) <= maxMetadata {
			all[k] = v
		}
	}
	return all
}

// tensorsOf returns the tensors among the values, and the names of all other values, such as the maps of classical
// classifiers.
func tensorsOf(of []ort.InputOutputInfo) (kept []ort.InputOutputInfo, others []string) {
	for _, i := range of {
		if i.OrtValueType == ort.ONNXTypeTensor {
			kept = append(kept, i)
		} else {
			others = append(others, i.Name)
		}
	}
	return kept, others
}

// zipMap says how to export a classifier of scikit-learn with a tensor of probabilities.
const zipMap = "export classifiers of scikit-learn with options={'zipmap': False}: then their probabilities are a " +
	"tensor, with a column for each class"

func (o Session) native() (n *ort.SessionOptions, err error) {
	if n, err = ort.NewSessionOptions(); err != nil {
		return nil, stream.Errorf(stream.Internal, "source", "%w", err)
	}
	spin := "0"
	if o.Spinning {
		spin = "1"
	}
	for _, set := range []func() error{
		func() error { return n.SetIntraOpNumThreads(o.Threads) },
		func() error { return n.SetInterOpNumThreads(o.InterThreads) },
		func() error { return n.AddSessionConfigEntry("session.intra_op.allow_spinning", spin) },
		func() error { return n.AddSessionConfigEntry("session.inter_op.allow_spinning", spin) },
		// Tensors of runs are in the memory of all models together, bounded by onnx.memory.
		func() error { return n.AddSessionConfigEntry("session.use_env_allocators", "1") },
		func() error { return n.AddSessionConfigEntry("session.use_device_allocator_for_initializers", "1") },
		func() error { return n.SetGraphOptimizationLevel(levels[o.Optimization]) },
	} {
		if err = set(); err != nil {
			_ = n.Destroy()
			return nil, stream.Errorf(stream.Internal, "source", "%w", err)
		}
	}
	if o.Provider == "cuda" {
		if err = o.cuda(n); err != nil {
			_ = n.Destroy()
			return nil, stream.Errorf(stream.Unavailable, "provider", "cuda: %s. It needs a build of ONNX Runtime "+
				"with CUDA, its provider libraries beside it, and the driver, CUDA and cuDNN on this machine: name "+
				"that build with onnx.library", shortMessage(err))
		}
	}
	return n, nil
}

func (o Session) cuda(n *ort.SessionOptions) error {
	c, err := ort.NewCUDAProviderOptions()
	if err != nil {
		return err
	}
	defer func() { _ = c.Destroy() }()
	if err = c.Update(map[string]string{"device_id": fmt.Sprint(o.Device)}); err != nil {
		return err
	}
	return n.AppendExecutionProviderCUDA(c)
}

// fileError returns the error of a model's file.
func fileError(path string, err error) error {
	text := shortMessage(err)
	has := func(any ...string) bool {
		return slices.ContainsFunc(any, func(s string) bool { return strings.Contains(text, s) })
	}
	code, hint := stream.InvalidArgument, ""
	switch {
	case has("Unsupported model IR version", " is under development"):
		if _, after, ok := strings.Cut(text, "opset versions. "); ok { // the supported versions
			text, _, _ = strings.Cut(after, " and support")
		}
		code, hint = stream.Unsupported, "export it again with an older opset, or name a newer library with "+
			"onnx.library"
	case has("No Op registered for", "not a registered function/op", "Could not find an implementation",
		"not currently registered or supported"):
		code, hint = stream.Unsupported, "the library lacks an operator or a type of the model: export it without, "+
			"or name another library with onnx.library"
	case has("rotobuf parsing failed", "does not have a graph"):
		hint = "the file is not an ONNX model, or it is truncated"
	case has("External data", "external data"):
		hint = "the files with the model's weights belong beside it, with the names that they were exported with"
	}
	if hint != "" {
		hint = ". " + strings.ToUpper(hint[:1]) + hint[1:]
	}
	return &stream.Error{Code: code, Field: "source", Msg: fmt.Sprintf("%s cannot be loaded: %s%s", path, text, hint),
		Err: err}
}

// sourceLocation matches the source location of a failure in the library: "/a/b.cc:12 T ns::F(int) const [with ...]
// ", or only "b.cc:12 F ".
var sourceLocation = regexp.MustCompile(`\S+\.(cc|h|cpp|cu):\d+ ([^("]*\(.*?\)( const)?( \[with [^\]]*\])? |\w+ )`)

// shortMessage returns a message of the library without the source location.
func shortMessage(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	for _, mark := range []string{"Status Message: ", "C session from file: ", "temporary session: ", " FAIL : ",
		", Error ", "with error: "} {
		if _, after, ok := strings.Cut(text, mark); ok {
			text = after
		}
	}
	if _, after, ok := strings.Cut(text, " failed:"); ok && strings.HasPrefix(text, "Load model from ") {
		text = after
	}
	text = sourceLocation.ReplaceAllString(text, "")
	const most = 300
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strings.TrimRight(strings.TrimSpace(text), ".")
}
