package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers in onnx.proto that lead to tensors with data in another file.
const (
	onnxModelGraph  = 7
	onnxModelFuncs  = 25
	onnxExternal    = 13 // of a tensor
	maxModelNesting = 16 // graphs in graphs
)

// externalFiles returns the files with weights named by the tensors of an ONNX model.
func externalFiles(model []byte) (files []string) {
	each(model, func(number protowire.Number, value []byte) {
		switch number {
		case onnxModelGraph:
			files = append(files, filesOfGraph(value, 0)...)
		case onnxModelFuncs:
			each(value, func(number protowire.Number, value []byte) {
				if number == 7 { // node
					files = append(files, filesOfNode(value, 0)...)
				}
			})
		}
	})
	slices.Sort(files)
	return slices.Compact(files)
}

func filesOfGraph(graph []byte, depth int) (files []string) {
	if depth > maxModelNesting {
		return nil
	}
	each(graph, func(number protowire.Number, value []byte) {
		switch number {
		case 1: // node
			files = append(files, filesOfNode(value, depth)...)
		case 5: // initializer
			files = append(files, filesOfTensor(value)...)
		case 15: // sparse_initializer, with values and indices
			each(value, func(number protowire.Number, value []byte) {
				if number == 1 || number == 2 {
					files = append(files, filesOfTensor(value)...)
				}
			})
		}
	})
	return files
}

func filesOfNode(node []byte, depth int) (files []string) {
	each(node, func(number protowire.Number, attribute []byte) {
		if number != 5 {
			return
		}
		each(attribute, func(number protowire.Number, value []byte) {
			switch number {
			case 5, 10: // t, tensors
				files = append(files, filesOfTensor(value)...)
			case 6, 11: // g, graphs
				files = append(files, filesOfGraph(value, depth+1)...)
			}
		})
	})
	return files
}

func filesOfTensor(tensor []byte) (files []string) {
	each(tensor, func(number protowire.Number, entry []byte) {
		if number != onnxExternal {
			return
		}
		var key, text string
		each(entry, func(number protowire.Number, value []byte) {
			switch number {
			case 1:
				key = string(value)
			case 2:
				text = string(value)
			}
		})
		if key == "location" {
			files = append(files, text)
		}
	})
	return files
}

// each calls f with each bytes field of a message. Invalid messages have no fields.
func each(message []byte, f func(number protowire.Number, value []byte)) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		size := protowire.ConsumeFieldValue(number, kind, message)
		if size < 0 {
			return
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			f(number, value)
		}
		message = message[size:]
	}
}

// readExternal reads the files with weights named by a model, only from the model's folder. The keys of the result
// are the files' paths beside the model in a load request.
func readExternal(model string, data []byte) (map[string][]byte, error) {
	named := externalFiles(data)
	if len(named) == 0 {
		return nil, nil
	}
	root, err := os.OpenRoot(filepath.Dir(model))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	files := map[string][]byte{}
	for _, name := range named {
		at := path.Clean(strings.ReplaceAll(name, `\`, "/"))
		if !filepath.IsLocal(at) || at == "." {
			return nil, usagef("%s: its weights are in %q, which is not in its folder: export the model again, with "+
				"the weights beside it", model, name)
		}
		file, err := root.Open(filepath.FromSlash(at))
		if err != nil {
			return nil, fmt.Errorf("%s: its weights are in %q, which must be a file in its folder: %w", model, name,
				err)
		}
		files[at], err = io.ReadAll(file)
		_ = file.Close() // opened only for reading
		if err != nil {
			return nil, fmt.Errorf("%s: %w", model, err)
		}
	}
	return files, nil
}
