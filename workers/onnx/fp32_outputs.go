//go:build cgo

package onnx

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"

	ort "github.com/yalue/onnxruntime_go"
	"google.golang.org/protobuf/encoding/protowire"

	"millrace/internal/codec"
	"millrace/stream"
)

// The binding cannot read outputs of FP16 and BF16 allocated by the library, and an output whose size is only known
// after the run cannot be bound to memory of the worker. A node Cast, added behind such an output, computes FP32,
// which is converted back. FP32 has all numbers of both types, so there is no rounding.

// widePrefix is in front of the name of an output converted to FP32.
const widePrefix = "millrace.float32/"

// Field numbers of onnx.proto for a node Cast and the node's output.
const (
	graphNode      = 1
	nodeInput      = 1
	nodeOutput     = 2
	nodeOperator   = 4
	nodeAttribute  = 5
	attributeName  = 1
	attributeInt   = 3
	attributeType  = 20
	attributeIsInt = 2
	typeElement    = 1
	elementFloat   = 1
)

// externalFolder is the library's option for the folder of a model's weights, when the model is not read from a file.
const externalFolder = "session.model_external_initializers_file_folder_path"

// widened opens the session of a model with the outputs in wide computed as FP32, under the names in outputs.
func widened(path string, wide, inputs, outputs []string, o *ort.SessionOptions) (*ort.DynamicAdvancedSession, error) {
	model, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := o.AddSessionConfigEntry(externalFolder, filepath.Dir(path)); err != nil {
		return nil, err
	}
	return ort.NewDynamicAdvancedSessionWithONNXData(append(model, casts(wide)...), inputs, outputs, o)
}

// casts returns the end of a model's file that adds a node Cast and an output for each of the given outputs: fields
// of a message that occur twice are merged.
func casts(outputs []string) []byte {
	var graph []byte
	for _, name := range outputs {
		attribute := appendField(nil, attributeName, []byte("to"))
		attribute = protowire.AppendVarint(protowire.AppendTag(attribute, attributeInt, protowire.VarintType),
			elementFloat)
		attribute = protowire.AppendVarint(protowire.AppendTag(attribute, attributeType, protowire.VarintType),
			attributeIsInt)
		node := appendField(nil, nodeInput, []byte(name))
		node = appendField(node, nodeOutput, []byte(widePrefix+name))
		node = appendField(node, nodeOperator, []byte("Cast"))
		node = appendField(node, nodeAttribute, attribute)
		graph = appendField(graph, graphNode, node)
		tensor := protowire.AppendVarint(protowire.AppendTag(nil, typeElement, protowire.VarintType), elementFloat)
		value := appendField(nil, valueName, []byte(widePrefix+name))
		value = appendField(value, valueType, appendField(nil, typeTensor, tensor))
		graph = appendField(graph, graphOutput, value)
	}
	return appendField(nil, modelGraph, graph)
}

func appendField(message []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(message, number, protowire.BytesType), value)
}

// narrowed converts elements of FP32 to FP16 or BF16, in place.
func narrowed(data []byte, d stream.Datatype) []byte {
	for i := range len(data) / 4 {
		bits := binary.LittleEndian.Uint32(data[4*i:])
		half := uint16(bits >> 16)
		if d == stream.Float16 {
			half = codec.Half(math.Float32frombits(bits))
		}
		binary.LittleEndian.PutUint16(data[2*i:], half)
	}
	return data[:len(data)/2]
}

// library returns an output's type in the library.
func (w *worker) library(i int) stream.Datatype {
	if w.castToFP32[i] {
		return stream.Float32
	}
	return w.outputs[i].Datatype
}
