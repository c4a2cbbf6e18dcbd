//go:build cgo

package onnx

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"millrace/internal/onnxfile"
	"millrace/stream"
	"millrace/workers"
)

// listOf answers the places of the bright pixels of a whole batch in a single list.
func listOf(batch, found string) []byte {
	limit := onnxfile.Tensor{Name: "limit", Type: onnxfile.Float32, Raw: floats(0.5)}
	return graph([]onnxfile.Value{value("images", onnxfile.Float32, batch, 1, 2, 2)},
		[]onnxfile.Value{value("found", onnxfile.Int64, found, 4)},
		[]onnxfile.Node{node("Greater", "images limit", "hot"), node("NonZero", "hot", "at"),
			node("Transpose", "at", "found")}, limit)
}

func TestListOfTheWholeBatch(t *testing.T) {
	path := write(t, listOf("batch", "n"))
	rig := newRig(t)
	_, err := rig.LoadConfig(context.Background(), workers.Config{Name: "m", Kind: "onnx", Source: path}, true)
	if err == nil || !strings.Contains(err.Error(), "batching.max_size: 1") {
		t.Fatalf("%v does not name the setting that works", err)
	}
	w, m := newWorker(t, &workers.Env{Name: "m", Source: path, MaxBatch: 1}, nil)
	if !m.Outputs[0].Unbatched || !slices.Equal(m.Outputs[0].Shape, []int{-1, 4}) || m.MaxBatch != 1 {
		t.Fatalf("%+v", m)
	}
	for n := range 4 { // a single result looks like a batch of one row
		picture := make([]float32, 4)
		for i := range n {
			picture[i] = 1
		}
		out, err := w.compute(context.Background(),
			[]stream.Tensor{tensor("images", stream.Float32, floats(picture...), 1, 1, 2, 2)}, 1)
		if err != nil || !slices.Equal(out[0].Shape, []int{1, n, 4}) {
			t.Errorf("%d: %v %v", n, out, err)
		}
	}
	// The same name as the batch's is the batch.
	_, m = newWorker(t, &workers.Env{Name: "m", Source: write(t, onnxfile.Identity(onnxfile.Float32, "N", 3)),
		MaxBatch: 1}, nil)
	if m.Outputs[0].Unbatched {
		t.Errorf("%+v", m)
	}
}

func TestMetadata(t *testing.T) {
	model := onnxfile.Model{
		Inputs:   []onnxfile.Value{value("x", onnxfile.Float32, "N", 3)},
		Outputs:  []onnxfile.Value{value("y", onnxfile.Float32, "N", 3)},
		Nodes:    []onnxfile.Node{node("Identity", "x", "y")},
		Metadata: [][2]string{{"task", "pose"}, {"names", "{0: 'é'}"}, {"graph", strings.Repeat("a", maxMetadata+1)}},
	}
	_, m := newWorker(t, &workers.Env{Name: "m", Source: write(t, model.Bytes())}, nil)
	if len(m.Metadata) != 2 || m.Metadata["task"] != "pose" || m.Metadata["names"] != "{0: 'é'}" {
		t.Errorf("%.200v", m.Metadata)
	}
}

// zipMapModel is a classifier of scikit-learn: a label, and probabilities in maps.
func zipMapModel(label bool) []byte {
	m := onnxfile.Model{
		Inputs:  []onnxfile.Value{value("x", onnxfile.Float32, "N", 2)},
		Outputs: []onnxfile.Value{value("label", onnxfile.Int64, "N")},
		Nodes: []onnxfile.Node{
			node("ArgMax", "x", "label", onnxfile.Attr{Name: "axis", Value: int64(1)},
				onnxfile.Attr{Name: "keepdims", Value: int64(0)}),
			{Op: "ZipMap", Domain: "ai.onnx.ml", Inputs: []string{"x"}, Outputs: []string{"maps"},
				Attrs: []onnxfile.Attr{{Name: "classlabels_int64s", Value: []int64{0, 1}}}},
		},
		Domain: "ai.onnx.ml",
	}
	if !label {
		m.Outputs, m.Nodes = nil, m.Nodes[1:]
	}
	b := m.Bytes()
	// A further graph, whose fields are added to the fields of the first graph: the output maps, a sequence of maps
	// from INT64 to tensors of FP32.
	message := func(number protowire.Number, body []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), body)
	}
	number := func(field protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), v)
	}
	tensorType := message(1, number(1, uint64(onnxfile.Float32)))
	mapType := message(5, append(number(1, uint64(onnxfile.Int64)), message(2, tensorType)...))
	out := append(message(1, []byte("maps")), message(2, message(4, message(1, mapType)))...)
	return append(b, message(7, message(12, out))...)
}

func TestMapsAreNamed(t *testing.T) {
	var log bytes.Buffer
	w, m := newWorker(t, &workers.Env{Name: "m", Source: write(t, zipMapModel(true)),
		Log: slog.New(slog.NewTextHandler(&log, nil))}, nil)
	if len(m.Outputs) != 1 || m.Outputs[0].Name != "label" || !strings.Contains(log.String(), "outputs=maps") ||
		!strings.Contains(log.String(), "'zipmap': False") {
		t.Errorf("%+v %s", m.Outputs, &log)
	}
	out, err := w.compute(context.Background(), []stream.Tensor{tensor("x", stream.Float32, floats(0.1, 0.9), 1, 2)}, 1)
	if err != nil || !bytes.Equal(out[0].Data, int64s(1)) {
		t.Errorf("%v %v", out, err)
	}
	_, err = (&worker{}).Init(context.Background(), &workers.Env{Name: "m", Source: write(t, zipMapModel(false)),
		Settings: w.settingsOf(t)})
	if err == nil || !strings.Contains(err.Error(), "'zipmap': False") {
		t.Errorf("%v", err)
	}
}

func (w *worker) settingsOf(t *testing.T) any {
	t.Helper()
	kind, _ := workers.Lookup("onnx")
	set, err := kind.Decode(nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}
