package repository

import (
	"fmt"
	"path/filepath"
	"slices"

	"millrace/internal/inferencepb"
	"millrace/internal/labels"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/workers"
)

// declared returns the inputs and outputs declared by a configuration.
func declared(pb *inferencepb.ModelConfig, kind string) (d workers.Declared, err error) {
	d.Batch, d.Single = pb.MaxBatchSize > 0, pb.MaxBatchSize == 0
	for i, in := range pb.Input {
		at := fmt.Sprintf("input[%d]", i)
		if in.IsShapeTensor || in.AllowRaggedBatch {
			return d, stream.Errorf(stream.Unsupported, at,
				"has is_shape_tensor or allow_ragged_batch, which are not supported")
		}
		if in.Optional {
			return d, stream.Errorf(stream.Unsupported, at+".optional",
				"is true, and models need all of their inputs: leave it out")
		}
		t := workers.Tensor{}
		if t.TensorSpec, err = specOf(at, in.Name, in.DataType, in.Dims); err != nil {
			return d, err
		}
		if t.Reshape, err = reshapeOf(at, kind, in.Reshape, t.Shape); err != nil {
			return d, err
		}
		if in.Format != inferencepb.ModelInput_FORMAT_NONE {
			t.Format = in.Format.String()
		}
		d.Inputs = append(d.Inputs, t)
	}
	for i, out := range pb.Output {
		at := fmt.Sprintf("output[%d]", i)
		if out.IsShapeTensor {
			return d, stream.Errorf(stream.Unsupported, at, "has is_shape_tensor, which is not supported")
		}
		t := workers.Tensor{LabelFile: out.LabelFilename}
		if t.TensorSpec, err = specOf(at, out.Name, out.DataType, out.Dims); err != nil {
			return d, err
		}
		if t.Reshape, err = reshapeOf(at, kind, out.Reshape, t.Shape); err != nil {
			return d, err
		}
		d.Outputs = append(d.Outputs, t)
	}
	return d, nil
}

// reshapeOf returns the reshaped shape of a tensor of the given dims; nil = no reshape. The free dimensions are the
// free dimensions of dims, in order.
func reshapeOf(at, kind string, r *inferencepb.ModelTensorReshape, dims []int) ([]int, error) {
	if r == nil {
		return nil, nil
	}
	at += ".reshape"
	if kind != "onnx" {
		return nil, stream.Errorf(stream.Unsupported, at, "is for ONNX models")
	}
	shape := []int{}
	for _, n := range r.Shape {
		if n < -1 || n == 0 || n > 1<<31 {
			return nil, stream.Errorf(stream.InvalidArgument, at+".shape", "%v: want numbers from 1, or -1 for any",
				r.Shape)
		}
		shape = append(shape, int(n))
	}
	// count returns the free dimensions and the product of the fixed dimensions, 0 when too large.
	count := func(shape []int) (free, product int) {
		var known []int
		for _, n := range shape {
			if n < 0 {
				free++
			} else {
				known = append(known, n)
			}
		}
		return free, max(stream.Elements(known), 0)
	}
	free, product := count(shape)
	if f, p := count(dims); f != free || p != product || p == 0 {
		return nil, stream.Errorf(stream.InvalidArgument, at+".shape", "%v has other numbers of elements than dims %v",
			shape, dims)
	}
	return shape, nil
}

// readLabels reads the files with the labels of outputs. dir is the model's folder, or "".
func (r *Repository) readLabels(d *workers.Declared, dir string) error {
	for i := range d.Outputs {
		out, at := &d.Outputs[i], fmt.Sprintf("output[%d].label_filename", i)
		if out.LabelFile == "" {
			continue
		}
		if dir == "" || !filepath.IsLocal(out.LabelFile) {
			return stream.Errorf(stream.InvalidArgument, at, "%.256q is not a file in the model's folder",
				out.LabelFile)
		}
		path := filepath.Join(dir, out.LabelFile)
		if err := checkLinkTarget(r.Dir, path); err != nil {
			return coded.PrefixField(at, err)
		}
		names, err := labels.Read(path)
		if err != nil {
			return stream.Errorf(stream.InvalidArgument, at, "%w", err)
		}
		out.Labels = names
	}
	return nil
}

func specOf(at, name string, of inferencepb.DataType, dims []int64) (s stream.TensorSpec, err error) {
	if name == "" {
		return s, stream.Errorf(stream.InvalidArgument, at+".name", "is missing")
	}
	s.Name = name
	if of != inferencepb.DataType_TYPE_INVALID {
		s.Datatype = datatype(of)
	}
	for _, d := range dims {
		if d < -1 || d == 0 || d > 1<<31 {
			return s, stream.Errorf(stream.InvalidArgument, at+".dims", "%v: want numbers from 1, or -1 for any", dims)
		}
		s.Shape = append(s.Shape, int(d))
	}
	return s, nil
}

// find returns the declaration of a tensor.
func find(declared []workers.Tensor, name string) workers.Tensor {
	if i := slices.IndexFunc(declared, func(t workers.Tensor) bool { return t.Name == name }); i >= 0 {
		return declared[i]
	}
	return workers.Tensor{}
}

func reshapePB(shape []int) *inferencepb.ModelTensorReshape {
	if shape == nil {
		return nil
	}
	r := &inferencepb.ModelTensorReshape{}
	for _, n := range shape {
		r.Shape = append(r.Shape, int64(n))
	}
	return r
}
