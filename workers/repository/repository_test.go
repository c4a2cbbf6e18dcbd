package repository_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"millrace/config"
	"millrace/internal/onnxfile"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
	_ "millrace/workers/container"
	_ "millrace/workers/graph"
	_ "millrace/workers/identity"
	_ "millrace/workers/onnx"
	_ "millrace/workers/process"
	_ "millrace/workers/python"
	_ "millrace/workers/remote"
	"millrace/workers/repository"
)

// rig is a repository with a manager that loads from it.
type rig struct {
	*workers.Manager
	repo *repository.Repository
	dir  string
}

func newRig(t *testing.T, files map[string]string) rig {
	t.Helper()
	dir := t.TempDir()
	r := rig{dir: dir}
	for path, text := range files {
		r.write(t, path, text)
	}
	var err error
	if r.repo, err = repository.New(repository.Options{Dir: dir, MaxSent: 1 << 20,
		YAML: config.ReadModel}); err != nil {
		t.Fatal(err)
	}
	r.Manager = workers.NewManager(workers.ManagerOptions{Memory: buf.NewPool(0), Repository: r.repo})
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r rig) write(t *testing.T, path, text string) {
	t.Helper()
	at := filepath.Join(r.dir, path)
	if strings.HasSuffix(path, "/") {
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at+".tmp", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at+".tmp", at); err != nil {
		t.Fatal(err)
	}
}

// small is a model with the input x and the output y, FP32 [N, 2]; wide has 3 in place of 2.
var small, wide = string(onnxfile.Identity(onnxfile.Float32, "N", 2)),
	string(onnxfile.Identity(onnxfile.Float32, "N", 3))

// Folders of file systems and of Python are no models, and neither are hidden folders.
func TestFoldersThatAreNoModels(t *testing.T) {
	r := newRig(t, map[string]string{"plain/1/model.onnx": small, "lost+found/1/x": "", "__pycache__/a.pyc": "",
		".git/config": "", ".Trash-0/1/model.onnx": small})
	var names []string
	for _, l := range r.Index() {
		names = append(names, l.Name)
	}
	if !slices.Equal(names, []string{"plain"}) {
		t.Errorf("%q", names)
	}
}

// A model may freely name the files with the model's weights.
func TestNamesOfSentFiles(t *testing.T) {
	r := newRig(t, nil)
	files := map[string][]byte{"1/model.onnx": []byte(small), "1/my weights (1).data": []byte("x"),
		"1/gewichte/größe+1.bin": []byte("x")}
	if _, err := r.Load(t.Context(), "new", workers.Load{Files: files,
		Config: []byte(`{"backend": "onnxruntime"}`)}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"1/../x", "1/.hidden", "1/a\\b", "1/a\nb", "1//x", "1/\xff"} {
		if _, err := r.Load(t.Context(), "bad",
			workers.Load{Files: map[string][]byte{"1/model.onnx": []byte(small), name: nil},
				Config: []byte(`{"backend": "onnxruntime"}`)}); err == nil ||
			!strings.Contains(err.Error(), "is not VERSION/FILE") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestModelsOfAFolder(t *testing.T) {
	r := newRig(t, map[string]string{
		"plain/1/model.onnx":  small,
		"set/1/model.onnx":    small,
		"set/config.yaml":     "batching: {max_size: 5}\nthreads: 2\ninstances: 2\n",
		"triton/1/model.onnx": small,
		"triton/3/model.onnx": small,
		"triton/config.pbtxt": "platform: \"onnxruntime_onnx\" max_batch_size: 6 version_policy: {all: {}}\ninput " +
			"[{name: \"x\" data_type: TYPE_FP32 dims: [2]}]\noutput [{name: \"y\" data_type: TYPE_FP32 dims: " +
			"[2]}]\ninstance_group [{count: 3}]\ndynamic_batching {preferred_batch_size: [4] preserve_ordering: " +
			"true max_queue_delay_microseconds: 300}\nparameters {key: \"intra_op_thread_count\" value " +
			"{string_value: \"2\"}}\nparameters {key: \"inter_op_thread_count\" value {string_value: " +
			"\"0\"}}\noptimization {graph {level: 1}}\n",
		"echo/config.yaml": "source: identity\n",
		"twice/1/":         "",
		"twice/config.pbtxt": `platform: "ensemble" input [{name: "x" data_type: TYPE_FP32 dims: [2]}] output [{name: "y" data_type: TYPE_FP32 dims: [2]}]
ensemble_scheduling {step [{model_name: "plain" model_version: -1 input_map {key: "x" value: "x"} output_map {key: "y" value: "mid"}}, {model_name: "set" input_map {key: "x" value: "mid"} output_map {key: "y" value: "y"}}]}`,
		"named/1/weights.onnx": small,
		"named/config.pbtxt":   `backend: "onnxruntime" default_model_filename: "weights.onnx"`,
	})
	for _, c := range []struct {
		name                 string
		versions             []string
		max, workers, inputs int
	}{
		{"plain", []string{"1"}, 8, 1, 1}, {"set", []string{"1"}, 5, 2, 1}, {"triton", []string{"1", "3"}, 6, 3, 1},
		{"echo", []string{"1"}, 0, 1, 0}, {"named", []string{"1"}, 8, 1, 1}, {"twice", []string{"1"}, 0, 1, 1},
	} {
		loaded, err := r.Load(t.Context(), c.name, workers.Load{})
		if err != nil || loaded.Endpoint != c.name {
			t.Errorf("%s: %v, %v", c.name, loaded, err)
			continue
		}
		g, err := r.Group(c.name, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Versions(c.name); !slices.Equal(got, c.versions) || g.Workers() != c.workers ||
			c.max > 0 && g.Model().MaxBatch != c.max || len(g.Model().Inputs) != c.inputs {
			t.Errorf("%s: versions %v, %d workers, batches of %d, %d inputs", c.name, got, g.Workers(),
				g.Model().MaxBatch, len(g.Model().Inputs))
		}
	}
	def, err := r.repo.Find("triton", nil, workers.Load{})
	if err != nil || !slices.ContainsFunc(def.Notes, func(n string) bool {
		return strings.HasPrefix(n, "optimization")
	}) || !slices.ContainsFunc(def.Notes, func(n string) bool {
		return strings.Contains(n, "preferred_batch_size")
	}) || !slices.ContainsFunc(def.Notes, func(n string) bool { return strings.Contains(n, "preserve_ordering") }) {
		t.Errorf("what is not used: %q, %v", def.Notes, err)
	}
	g, _ := r.Group("triton", "3")
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(repository.Config(g, r.Versions("triton")))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got["max_batch_size"] != 6.0 || got["backend"] != "onnxruntime" ||
		!strings.Contains(string(text), `"max_queue_delay_microseconds":`) ||
		!strings.Contains(string(text), `"all":`) || !strings.Contains(string(text), "TYPE_FP32") {
		t.Errorf("configuration: %s", text)
	}
	g, _ = r.Group("twice", "")
	steps := repository.Config(g, nil)
	if got := fmt.Sprintln(steps.GetPlatform(), steps.GetBackend(),
		steps.GetEnsembleScheduling().GetStep()[1].GetModelName(),
		steps.GetEnsembleScheduling().GetStep()[0].GetOutputMap()); got != "ensemble  set map[y:mid]\n" {
		t.Errorf("an ensemble's configuration: %s", steps)
	}
	if err := r.UnloadAll(t.Context(), "twice", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Group("plain", ""); err == nil {
		t.Error("plain stayed")
	}
	if _, err := r.Load(t.Context(), "twice", workers.Load{}); err != nil { // including the models of the graph
		t.Error(err)
	}
	for _, name := range []string{"plain", "set"} {
		if _, err := r.Group(name, ""); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.Load(t.Context(), "triton", workers.Load{Version: "7"}); stream.CodeOf(err) != stream.NotFound {
		t.Errorf("a version that is not there: %v", err)
	}
}

func TestBadModels(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "model.onnx"), []byte(small), 0o644); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, map[string]string{
		"empty/": "", "nofile/1/": "", "nofile/1/notes.txt": "x", "hex/0x1/model.onnx": small,
		"torn/1/model.onnx": small[:len(small)/2], "zero/1/model.onnx": "",
		"unknown/1/model.onnx": small, "unknown/config.yaml": "batching: {max_sise: 5}\n",
		"unknown2/1/model.onnx": small, "unknown2/config.pbtxt": "dynamic_batching {\n  colour: 3 }",
		"both/1/model.onnx": small, "both/config.yaml": "instances: 1", "both/config.pbtxt": "max_batch_size: 2",
		"huge/1/model.onnx": small, "huge/config.pbtxt": strings.Repeat("# x\n", 300_000),
		"shape/1/model.onnx": small, "shape/config.pbtxt": `max_batch_size: 4 input [{name: "x" data_type: ` +
			`TYPE_FP32 dims: [3]}]`,
		"type/1/model.onnx": small, "type/config.pbtxt": `max_batch_size: 4 input [{name: "x" data_type: TYPE_INT8 ` +
			`dims: [2]}]`,
		"name/1/model.onnx": small, "name/config.pbtxt": `name: "other"`,
		"backend/1/model.onnx": small, "backend/config.pbtxt": `backend: "pytorch"`,
		"seq/1/model.onnx": small, "seq/config.pbtxt": `sequence_batching { iterative_sequence: true }`,
		"path/1/model.onnx": small, "path/config.pbtxt": `backend: "onnxruntime" default_model_filename: ` +
			`"../../plain.onnx"`,
		"source/1/model.onnx": small, "source/config.yaml": "source: /etc/passwd.onnx",
		"linked/1/":             "",
		"elements/1/model.onnx": small, "elements/config.pbtxt": `max_batch_size: 4 input { name: "x" dims: [2] ` +
			`reshape { shape: [3] } }`,
		"reshape/1/model.onnx": small, "reshape/config.pbtxt": `max_batch_size: 4 input { name: "x" dims: [4] ` +
			`reshape { shape: [2, 2] } }`,
		"optional/1/model.onnx": small, "optional/config.pbtxt": `max_batch_size: 4 input { name: "x" dims: [4] ` +
			`optional: true }`,
		"free/1/model.onnx": small, "free/config.pbtxt": `max_batch_size: 4 output { name: "y" dims: [-1] reshape { ` +
			`shape: [2] } }`,
		"native/config.pbtxt": `backend: "identity" input { name: "x" data_type: TYPE_FP32 dims: [2] reshape { ` +
			`shape: [2, 1] } }`,
		"labels/1/model.onnx": small, "labels/config.pbtxt": `max_batch_size: 4 output { name: "y" dims: [2] ` +
			`label_filename: "none.txt" }`,
		"passwd/1/model.onnx": small, "passwd/config.pbtxt": `max_batch_size: 4 output { name: "y" dims: [2] ` +
			`label_filename: "../labels/config.pbtxt" }`,
		"unpaired/config.pbtxt": `backend: "identity" max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 ` +
			`dims: [2] }`,
		"text/config.yaml":   "source: identity\ntensors: {inputs: [x]}\n",
		"word/config.yaml":   "source: identity\ntensors: {inputs: [x FP99 2]}\n",
		"axis/config.yaml":   "source: identity\ntensors: {outputs: [x FP32 2 q]}\n",
		"rows/config.yaml":   "source: identity\nbatching: {max_size: 2}\ntensors: {inputs: [x FP32 2]}\n",
		"pair/config.yaml":   "source: identity\ntensors: {inputs: [x FP32 2], outputs: [y FP32 3]}\n",
		"wrong/1/model.onnx": small, "wrong/config.yaml": "tensors: {inputs: [x FP32 -1 3]}\n",
		"untyped/config.pbtxt": `backend: "identity" input { name: "x" dims: [2] } output { name: "y" dims: [2] }`,
		"dims/config.pbtxt": `backend: "identity" input { name: "x" data_type: TYPE_FP32 dims: [2] } output { ` +
			`name: "y" data_type: TYPE_FP32 dims: [3] }`,
	})
	r.write(t, "outside/1/model.onnx", small)
	r.write(t, "outside/config.pbtxt", `max_batch_size: 4 output { name: "y" dims: [2] label_filename: "names.txt" }`)
	if err := os.Symlink("/etc/hostname", filepath.Join(r.dir, "outside", "names.txt")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "model.onnx"),
		filepath.Join(r.dir, "linked", "1", "model.onnx")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"empty": "has no version", "nofile": "model.onnx", "hex": "has no version", "torn": "cannot be loaded",
		"zero":    "is empty",
		"unknown": "max_sise", "unknown2": "unknown field: colour", "both": "leave one of the files out",
		"huge":  "larger than 1 MiB",
		"shape": "input[0].dims", "type": "input[0].data_type", "name": `"other"`, "backend": "pytorch",
		"seq":  "sequence_batching",
		"path": "default_model_filename", "source": "source", "linked": "outside of the repository",
		"elements": "input[0].reshape.shape", "reshape": "input[0].reshape.shape", "optional": "input[0].optional",
		"free": "output[0].reshape.shape", "native": "input[0].reshape: is for ONNX models",
		"labels": "none.txt", "passwd": "output[0].label_filename", "outside": "output[0].label_filename",
		"unpaired": "output: has 0 tensors", "untyped": "output[0].data_type", "dims": "output[0].dims",
		"text": "tensors.inputs[0]", "word": "FP99", "axis": `tensors.outputs[0]: "x FP32 2 q" has the dimension "q"`,
		"rows": "tensors.inputs[0]", "pair": "tensors.outputs[0]: of y", "wrong": "tensors.inputs[0]: of x",
	} {
		_, err := r.Load(t.Context(), name, workers.Load{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", name, err, want)
			continue
		}
		rows := r.Index()
		if k := slices.IndexFunc(rows, func(row workers.Row) bool {
			return row.Name == name
		}); k < 0 || rows[k].State != workers.StateUnavailable || !strings.Contains(rows[k].Reason, want) {
			t.Errorf("%s: its row does not say why: %+v", name, rows)
		}
	}
	for _, name := range []string{"../x", "a/b", "é", "..", ".", "", "empty/../torn"} {
		if _, err := r.Load(t.Context(), name, workers.Load{}); stream.CodeOf(err) != stream.NotFound {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// An unreadable version keeps no other version from being loaded, and the index has the reason; latest counts
// unreadable versions, too.
func TestBadVersion(t *testing.T) {
	r := newRig(t, map[string]string{
		"all/1/model.onnx": small, "all/2/model.onnx": small, "all/3/": "",
		"all/config.yaml":     `versions: {all: true, weights: ["1=1", "3=1"]}`,
		"latest/1/model.onnx": small, "latest/2/": "",
		"newest/1/model.onnx": small, "newest/2/": "", "newest/config.yaml": "versions: {latest: 2}",
		"none/1/": "", "none/2/": "", "none/config.yaml": "versions: {all: true}",
	})
	for _, c := range []struct {
		name           string
		served, failed []string
	}{
		{"all", []string{"1", "2"}, []string{"3"}},
		{"latest", nil, []string{"2"}},
		{"newest", []string{"1"}, []string{"2"}},
		{"none", nil, []string{"1", "2"}},
	} {
		_, err := r.Load(t.Context(), c.name, workers.Load{})
		for _, v := range c.failed {
			if err == nil || !strings.Contains(err.Error(), filepath.Join(c.name, v)+" has no file model.onnx") {
				t.Errorf("%s: %v: want the reason of version %s", c.name, err, v)
			}
		}
		if err != nil && !strings.HasPrefix(err.Error(), "load failed for model '"+c.name+"': ") {
			t.Error(err)
		}
		if got := r.Versions(c.name); !slices.Equal(got, c.served) {
			t.Errorf("%s: versions %v are served, want %v", c.name, got, c.served)
		}
		for _, row := range r.Index() {
			if row.Name == c.name && slices.Contains(c.failed, row.Version) &&
				(row.State != workers.StateUnavailable || !strings.Contains(row.Reason, " has no file model.onnx")) {
				t.Errorf("%+v", row)
			}
		}
	}
	for range 4 {
		if v := r.Choose("all"); v != "1" && v != "2" {
			t.Errorf("version %q is chosen", v)
		}
	}
	before, _ := r.Group("all", "1")
	r.write(t, "all/3/model.onnx", small)
	if _, err := r.Load(t.Context(), "all", workers.Load{}); err != nil {
		t.Error(err)
	}
	if g, _ := r.Group("all", "1"); g != before || !slices.Equal(r.Versions("all"), []string{"1", "2", "3"}) {
		t.Errorf("versions %v are served", r.Versions("all"))
	}
}

// TestLoadAllAtOnce: a slow load delays no other model.
func TestLoadAllAtOnce(t *testing.T) {
	r := newRig(t, map[string]string{"a/1/model.onnx": small, "b/1/model.onnx": small, "c/1/model.onnx": "torn"})
	b := make(chan struct{})
	failed := r.LoadAll(t.Context(), []string{"a", "b", "c"}, func(name string) error {
		if name == "b" {
			close(b)
			return stream.Errorf(stream.Internal, "", "a stage fails")
		}
		select {
		case <-b:
			return nil
		case <-time.After(time.Minute):
			return stream.Errorf(stream.Timeout, "", "b is not loaded while a is")
		}
	})
	if len(failed) != 2 || failed["a"] != nil || failed["b"] == nil || failed["c"] == nil {
		t.Errorf("%v", failed)
	}
}

func TestReloadInPlace(t *testing.T) {
	r := newRig(t, map[string]string{"m/1/model.onnx": small})
	load := func(how workers.Load) *workers.Group {
		t.Helper()
		loaded, err := r.Load(t.Context(), "m", how)
		if err != nil || loaded.Endpoint != "m" {
			t.Fatalf("%v: %v", loaded, err)
		}
		g, err := r.Group("m", "")
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first := load(workers.Load{})
	if load(workers.Load{}) != first {
		t.Error("nothing has changed, and the model was loaded again")
	}
	r.write(t, "m/1/model.onnx", small) // the same content in another file
	if load(workers.Load{}) != first {
		t.Error("the files are equal, and the model was loaded again")
	}
	r.write(t, "m/1/model.onnx", wide)
	second := load(workers.Load{})
	if second == first || second.Model().Inputs[0].Shape[0] != 3 {
		t.Error("the file has changed, and the model was not loaded again")
	}
	r.write(t, "m/1/model.onnx", "torn")
	if _, err := r.Load(t.Context(), "m", workers.Load{}); err == nil {
		t.Error("a torn file was loaded")
	}
	if g, err := r.Group("m", ""); err != nil || g != second || !g.Ready() {
		t.Errorf("the old model does not serve after a failed reload: %v", err)
	}
	if rows := r.Index(); len(rows) != 1 || rows[0].State != workers.StateReady || rows[0].Reason == "" {
		t.Errorf("the index does not say why: %+v", rows)
	}
	r.write(t, "m/1/model.onnx", wide)
	if load(workers.Load{}) != second {
		t.Error("the file is what it was, and the model was loaded again")
	}
	r.write(t, "m/config.yaml", "batching: {max_size: 3}\n")
	third := load(workers.Load{})
	if third == second || third.Model().MaxBatch != 3 {
		t.Error("the configuration has changed, and the model was not loaded again")
	}
	for _, text := range []string{"", "# nothing yet\n", "batching: {max_size: 2}"} {
		r.write(t, "m/config.yaml", text)
		if _, err := r.Load(t.Context(), "m", workers.Load{}); err == nil ||
			!strings.Contains(err.Error(), "still be written") {
			t.Errorf("with the configuration %q: %v", text, err)
		}
		if g, err := r.Group("m", ""); err != nil || g != third || !g.Ready() {
			t.Errorf("the old model does not serve: %v", err)
		}
	}
	r.write(t, "m/config.yaml", "batching: {max_size: 3}\n")
	load(workers.Load{})
	if rows := r.Index(); len(rows) != 1 || rows[0].Reason != "" {
		t.Errorf("%+v", rows)
	}
}

// The names in a file of labels are a part of the configuration.
func TestReloadOfLabels(t *testing.T) {
	r := newRig(t, map[string]string{
		"m/1/model.onnx": small, "m/names.txt": "a\nb\n",
		"m/config.pbtxt": `max_batch_size: 4 output { name: "y" dims: [2] label_filename: "names.txt" }`,
	})
	for _, want := range []string{"a b", "c d"} {
		r.write(t, "m/names.txt", strings.ReplaceAll(want, " ", "\n"))
		if _, err := r.Load(t.Context(), "m", workers.Load{}); err != nil {
			t.Fatal(err)
		}
		g, err := r.Group("m", "")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(g.Model().Labels["y"], " "); got != want {
			t.Errorf("labels are %q, want %q", got, want)
		}
	}
}

// TestErrorsOfSentFiles: errors, and the reasons of the index, have the request's name of a sent file, not the path
// on the server.
func TestErrorsOfSentFiles(t *testing.T) {
	r := newRig(t, map[string]string{})
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	for name, c := range map[string]struct {
		how  workers.Load
		want string
	}{
		"junk": {workers.Load{Files: map[string][]byte{"1/model.onnx": []byte("junk")}},
			"1/model.onnx cannot be loaded"},
		"none": {workers.Load{Files: map[string][]byte{"1/other": []byte("junk")}}, "1 has no file model.onnx"},
		"both": {workers.Load{Files: map[string][]byte{"1/model.onnx": []byte("junk"),
			"2/model.onnx": []byte("junk")}, Config: []byte(`{"backend":"onnxruntime","version_policy":{"all":{}}}`)},
			"2/model.onnx cannot be loaded"},
		"label": {workers.Load{Files: map[string][]byte{"1/model.onnx": []byte(small)},
			Config: []byte(`{"backend":"onnxruntime","output":[{"name":"y","data_type":"TYPE_FP32","dims":[2],` +
				`"label_filename":"none.txt"}]}`)}, "none.txt"},
	} {
		_, err := r.Load(t.Context(), name, c.how)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), temp) ||
			stream.CodeOf(err) == stream.Internal {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		for _, e := range r.Index() {
			if strings.Contains(e.Reason, temp) {
				t.Errorf("the reason of %s in the index: %s", name, e.Reason)
			}
		}
	}
}

func TestSentModels(t *testing.T) {
	r := newRig(t, map[string]string{"m/1/model.onnx": small})
	sent := func() (n int) {
		found, err := filepath.Glob(filepath.Join(os.TempDir(), "millrace-model-*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	t.Setenv("TMPDIR", t.TempDir())
	files := map[string][]byte{"1/model.onnx": []byte(wide)}
	if _, err := r.Load(t.Context(), "m", workers.Load{}); err != nil {
		t.Fatal(err)
	}
	for name, how := range map[string]workers.Load{
		"new": {Files: files, Config: []byte(`{"backend": "onnxruntime", "max_batch_size": 7}`)}, "m": {Files: files},
	} {
		if got, err := r.Load(t.Context(), name, how); err != nil || got.Endpoint != name {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
		if g, err := r.Group(name, ""); err != nil || g.Model().Inputs[0].Shape[0] != 3 ||
			name == "new" && g.Model().MaxBatch != 7 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if sent() != 2 {
		t.Errorf("%d folders", sent())
	}
	// the folder's file again
	if _, err := r.Load(t.Context(), "m", workers.Load{Config: []byte(`{"max_batch_size": 2}`)}); err != nil {
		t.Error(err)
	}
	if g, _ := r.Group("m", ""); g.Model().MaxBatch != 2 || g.Model().Inputs[0].Shape[0] != 2 {
		t.Error("config does not override the folder's")
	}
	if err := r.Unload(t.Context(), "new", ""); err != nil {
		t.Fatal(err)
	}
	if sent() != 0 {
		t.Errorf("%d folders are left", sent())
	}
	many := map[string][]byte{}
	for i := range 65 {
		many["1/f"+strings.Repeat("x", i)] = nil
	}
	for name, how := range map[string]workers.Load{
		"slash": {Files: map[string][]byte{"1/../../model.onnx": nil}},
		"abs":   {Files: map[string][]byte{"/1/model.onnx": nil}},
		"zero":  {Files: map[string][]byte{"0/model.onnx": nil}},
		"top":   {Files: map[string][]byte{"config.pbtxt": nil}}, "none": {Files: map[string][]byte{}},
		"many":  {Files: many},
		"large": {Files: map[string][]byte{"1/model.onnx": make([]byte, 2<<20)}}, "a/b": {Files: files},
		"torn":  {Files: map[string][]byte{"1/model.onnx": []byte("x")}},
		"field": {Files: files, Config: []byte(`{"colour": 1}`)}, "json": {Files: files, Config: []byte(`{`)},
		"count":   {Files: files, Config: []byte(`{"instance_group": [{"count": 1000}]}`)},
		"nofiles": {Config: []byte(`{}`)},
	} {
		if _, err := r.Load(t.Context(), name, how); err == nil {
			t.Errorf("%s: loaded", name)
		}
	}
	// Clients of other servers look for this code and text.
	_, err := r.Load(t.Context(), "m", workers.Load{Files: map[string][]byte{strings.Repeat("A", 256): nil},
		Config: []byte(`{}`)})
	if stream.CodeOf(err) != stream.Internal ||
		!strings.HasPrefix(err.Error(), "failed to load 'm', failed to poll from model repository: file:AAAA") {
		t.Errorf("a file with too long a name: %v", err)
	}
	if sent() != 0 {
		t.Errorf("%d folders are left after refused loads", sent())
	}
}

func TestChanges(t *testing.T) {
	r := newRig(t, map[string]string{"a/1/model.onnx": small, "b/1/model.onnx": small})
	c := repository.Changes{Repository: r.repo}
	look := func(want, wantGone string) {
		t.Helper()
		changed, gone, err := c.Look()
		if err != nil {
			t.Fatal(err)
		}
		if got, g := strings.Join(changed, " "), strings.Join(gone, " "); got != want || g != wantGone {
			t.Errorf("changed %q, gone %q, want %q and %q", got, g, want, wantGone)
		}
	}
	if all, err := c.Take(); len(all) != 2 || err != nil {
		t.Error(all, err)
	}
	look("", "")
	r.write(t, "a/2/model.onnx", wide)
	r.write(t, "new/1/model.onnx", "half")
	look("", "") // the files may still be written
	r.write(t, "new/1/model.onnx", small)
	look("a", "")
	look("new", "")
	if err := os.RemoveAll(filepath.Join(r.dir, "b")); err != nil {
		t.Fatal(err)
	}
	look("", "")
	look("", "b")
	look("", "")
	away := filepath.Join(t.TempDir(), "away")
	if err := os.Rename(r.dir, away); err != nil {
		t.Fatal(err)
	}
	for range 3 { // says nothing of the models
		if changed, gone, err := c.Look(); stream.CodeOf(err) != stream.Unavailable || len(changed)+len(gone) > 0 {
			t.Errorf("without the folder: changed %q, gone %q, %v", changed, gone, err)
		}
	}
	if err := os.Rename(away, r.dir); err != nil {
		t.Fatal(err)
	}
	look("", "")
	if err := os.Rename(filepath.Join(r.dir, "new"), away); err != nil {
		t.Fatal(err)
	}
	look("", "")
	if err := os.Rename(away, filepath.Join(r.dir, "new")); err != nil { // a short absence
		t.Fatal(err)
	}
	look("", "")
}

// A model's folder may be a link: changes of the link's target are found.
func TestChangesOfLinkedFolder(t *testing.T) {
	r := newRig(t, map[string]string{"a/1/model.onnx": small})
	at := t.TempDir()
	if err := os.Rename(filepath.Join(r.dir, "a"), filepath.Join(at, "one")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(at, "one"), filepath.Join(r.dir, "a")); err != nil {
		t.Fatal(err)
	}
	c := repository.Changes{Repository: r.repo}
	if all, err := c.Take(); len(all) != 1 || err != nil {
		t.Fatal(all, err)
	}
	if err := os.WriteFile(filepath.Join(at, "one", "1", "model.onnx"), []byte(wide), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, _ = c.Look()
	if changed, _, err := c.Look(); len(changed) != 1 || err != nil {
		t.Errorf("changed: %q", changed)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("m", `{"max_batch_size": 3, "input": [{"name": "x", "dims": [2]}]}`)
	f.Add("m", `{"instance_group": [{"count": -1}], "version_policy": {"latest": {"num_versions": 0}}}`)
	known := &workers.Definition{Versions: []workers.Config{workers.Config{Name: "m", Kind: "identity"}.WithDefaults()}}
	r, err := repository.New(repository.Options{YAML: config.ReadModel})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		def, err := r.Find(name, known, workers.Load{Config: []byte(text)})
		if err == nil {
			for _, c := range def.Versions {
				if c.Instances > 64 {
					t.Errorf("%d instances by a request", c.Instances)
				}
			}
		}
	})
}

// A load request changes only its own definition.
func TestOverrideOfTheConfiguration(t *testing.T) {
	cfg, err := config.Parse([]byte("models: [{name: m, source: identity, batching: {kind: soft, max_size: 4, "+
		"max_delay: 5ms}}]"), "file")
	if err != nil {
		t.Fatal(err)
	}
	known := &workers.Definition{Versions: cfg.Models}
	r, err := repository.New(repository.Options{YAML: config.ReadModel})
	if err != nil {
		t.Fatal(err)
	}
	delay := func(def *workers.Definition) string {
		f, ok := def.Versions[0].Table().Find("batching.max_delay")
		if !ok {
			t.Fatal("no such setting")
		}
		return f.String()
	}
	def, err := r.Find("m", known, workers.Load{Config: []byte(`{"backend": "identity", "dynamic_batching": ` +
		`{"max_queue_delay_microseconds": 100000}, "version_policy": {"all": {}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	if delay(def) != "100ms" || delay(known) != "5ms" || len(def.Notes) != 1 ||
		!strings.HasPrefix(def.Notes[0], "version_policy") {
		t.Errorf("%q; the request's delay %s, the configuration's %s", def.Notes, delay(def), delay(known))
	}
	for field, text := range map[string]string{
		"backend": `{"backend": "onnxruntime"}`, "platform": `{"platform": "nonsense"}`,
		"default_model_filename": `{"default_model_filename": "../x"}`,
	} {
		if _, err := r.Find("m", known, workers.Load{Config: []byte(text)}); err == nil ||
			!strings.HasPrefix(err.Error(), field+": ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestSentRemote: a configuration or files from a load request may not name another server, with an address and
// credentials.
func TestSentRemote(t *testing.T) {
	r, err := repository.New(repository.Options{YAML: config.ReadModel, MaxSent: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse([]byte(`models: [{name: far, source: "h:8001", upstream: {token: geheim}}]`), "file")
	if err != nil {
		t.Fatal(err)
	}
	to := []byte(`{"backend": "remote", "parameters": {"upstream.address": {"string_value": "h:1"}}}`)
	for name, try := range map[string]struct {
		known *workers.Definition
		how   workers.Load
	}{
		"override": {&workers.Definition{Versions: cfg.Models}, workers.Load{Config: to}},
		"files":    {nil, workers.Load{Config: to, Files: map[string][]byte{"1/model.onnx": nil}}},
	} {
		if def, err := r.Find("far", try.known, try.how); stream.CodeOf(err) != stream.PermissionDenied {
			t.Errorf("%s: %+v, %v", name, def, err)
		}
	}
}

// TestSentHostParams: a configuration from a load request sets no parameter of the machine: programs, folders, images.
// The values of the server's configuration may be repeated.
func TestSentHostParams(t *testing.T) {
	r := newRig(t, map[string]string{"stored/1/model.onnx": small})
	cfg, err := config.Parse([]byte(`models:
  - {name: image, source: "container://localhost/a:1", container: {memory: 64MiB}}
  - {name: program, source: process, command: /bin/true}
  - {name: service, source: python, venv: /packages}`), "file")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]*workers.Definition{}
	for _, m := range cfg.Models {
		known[m.Name] = &workers.Definition{Versions: []workers.Config{m.WithDefaults()}}
	}
	for _, c := range []struct{ model, backend, name, value string }{
		{"image", "container", "container.model", "/etc"}, {"image", "container", "container.gpus", "all"},
		{"image", "container", "container.memory", "8GiB"}, {"image", "container", "container.serve.port", "80"},
		{"program", "process", "command", "/bin/sh"}, {"program", "process", "args", "-c"},
		{"program", "process", "env", "A=b"}, {"program", "process", "dir", "/"},
		{"service", "python", "python", "/bin/sh"}, {"service", "python", "venv", "/other"},
		{"service", "python", "dir", "/"},
		{"stored", "process", "command", "/bin/sh"}, {"stored", "container", "container.image", "localhost/b:1"},
	} {
		sent := fmt.Appendf(nil, `{"backend": %q, "parameters": {%q: {"string_value": %q}}}`, c.backend, c.name, c.value)
		def, err := r.repo.Find(c.model, known[c.model], workers.Load{Config: sent})
		if err == nil || !strings.Contains(err.Error(), "parameters."+c.name+": can only be set in the server's") {
			t.Errorf("%s of %s: %+v, %v", c.name, c.model, def, err)
		}
	}
	for model, same := range map[string]string{
		"image":   `{"parameters": {"container.memory": {"string_value": "67108864"}}}`,
		"program": `{"parameters": {"command": {"string_value": "/bin/true"}}}`,
	} {
		if _, err := r.repo.Find(model, known[model], workers.Load{Config: []byte(same)}); err != nil {
			t.Errorf("%s: %v", model, err)
		}
	}
}

// TestSentProgramHasTheInterpreterOfTheModel: a program sent by a request to replace a program of the server runs
// with the server's interpreter, which no request can set, and without the other settings of the replaced program.
func TestSentProgramHasTheInterpreterOfTheModel(t *testing.T) {
	r := newRig(t, map[string]string{
		"stored/1/model.py": "", "stored/config.yaml": "{venv: /packages, env: [A=secret]}",
		"other/1/model.onnx": small, "broken/1/model.py": "", "broken/config.yaml": "{colour: 1}",
	})
	cfg, err := config.Parse(fmt.Appendf(nil,
		`models: [{name: known, source: %q, python: /usr/bin/python9, env: [A=secret], instances: 2}]`,
		filepath.Join(r.dir, "broken/1/model.py")), "file")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]stream.Params{"known": {"python": "/usr/bin/python9"},
		"stored": {"venv": "/packages"}, "other": nil, "broken": nil, "new": nil} {
		var known *workers.Definition
		if name == "known" {
			known = &workers.Definition{Versions: []workers.Config{cfg.Models[0].WithDefaults()}}
		}
		def, err := r.repo.Find(name, known, workers.Load{Files: map[string][]byte{"1/model.py": nil}})
		if err != nil {
			t.Fatal(err)
		}
		defer def.Files.Remove()
		if got := def.Versions[0]; !maps.Equal(got.Params, want) || got.Instances != 1 ||
			!strings.HasPrefix(got.Source, def.Files.Folder) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if cfg.Models[0].Params["env"] == nil {
		t.Error("the settings of the model of the server have changed")
	}
}

// TestWeightsBesideTriton: config.yaml next to a config.pbtxt has the weights and the shadow, unknown to
// config.pbtxt.
func TestWeightsBesideTriton(t *testing.T) {
	r := newRig(t, map[string]string{
		"m/1/model.onnx": small, "m/2/model.onnx": small, "m/3/model.onnx": small,
		"m/config.pbtxt": `backend: "onnxruntime" max_batch_size: 4 version_policy { all {} }`,
		"m/config.yaml":  `{versions: {weights: ["1=95", "2=5"]}, shadow: {version: "3", sample: 0.5}}`,
	})
	if _, err := r.Load(t.Context(), "m", workers.Load{}); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for range 200 {
		counts[r.Choose("m")]++
	}
	if counts["1"] != 190 || counts["2"] != 10 {
		t.Errorf("of 200 requests: %v", counts)
	}
	g, err := r.Group("m", "3")
	if err != nil {
		t.Fatal(err)
	}
	if c := g.Config(); c.Shadow.Version != "3" || c.Shadow.Sample != 0.5 || g.Model().MaxBatch != 4 {
		t.Errorf("%+v", c.Shadow)
	}
	for text, want := range map[string]string{
		`batching: {max_size: 2}`:             "versions and shadow only",
		`source: delay`:                       "versions and shadow only",
		`source: identity`:                    "versions and shadow only",
		`versions: {latest: 2}`:               "version_policy",
		`versions: {colour: 1}`:               "colour",
		`versions: {weights: ["1=1", "1=2"]}`: "weights",
	} {
		r.write(t, "m/config.yaml", text)
		if _, err := r.Load(t.Context(), "m", workers.Load{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestSwapsOfFiles: a swap keeps the settings of the running model and the number of workers set by Scale, with and
// without a further file, also for an endpoint whose name is no model's. Without a swap, a file has the default
// settings.
func TestSwapsOfFiles(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	r := newRig(t, map[string]string{"m/1/model.onnx": small,
		"m/config.pbtxt": `backend: "onnxruntime" max_batch_size: 5`})
	files := map[string][]byte{"1/model.onnx": []byte(wide)}
	load := func(name string, how workers.Load, max, count int) {
		t.Helper()
		if _, err := r.Load(t.Context(), name, how); err != nil {
			t.Fatal(err)
		}
		g, err := r.Group(name, "")
		if err != nil {
			t.Fatal(err)
		}
		if g.Model().MaxBatch != max || g.Workers() != count {
			t.Errorf("%s: batches of %d, %d workers: want %d, %d", name, g.Model().MaxBatch, g.Workers(), max, count)
		}
	}
	swap := stream.Params{"swap": true}
	load("m", workers.Load{}, 5, 1)
	load("m", workers.Load{Params: swap, Files: files}, 5, 1)
	load("m", workers.Load{Params: stream.Params{"swap": true, "batching.max_size": int64(6), "instances": int64(2)},
		Files: files}, 6, 2)
	if err := r.Scale(t.Context(), "m", 3); err != nil {
		t.Fatal(err)
	}
	load("m", workers.Load{Params: swap}, 6, 3)
	load("m", workers.Load{Params: swap, Files: files}, 6, 3)
	if _, err := r.Load(t.Context(), "m", workers.Load{Params: stream.Params{"batching.max_size": int64(7)}}); err !=
		nil {
		t.Fatal(err)
	}
	load("m-0", workers.Load{Params: swap, Files: files}, 7, 1)
	loaded, err := r.Load(t.Context(), "m", workers.Load{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	if g, err := r.Group(loaded.Endpoint, ""); err != nil || loaded.Endpoint != "m-1" || g.Model().MaxBatch != 8 {
		t.Errorf("a load of a file: %v, %v", loaded, err)
	}
}
