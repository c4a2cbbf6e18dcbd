package oip

import (
	"math"
	"math/bits"

	"millrace/stream/coded"
)

// The datatypes of the protocol.
const (
	Bool   = "BOOL"
	Uint8  = "UINT8"
	Uint16 = "UINT16"
	Uint32 = "UINT32"
	Uint64 = "UINT64"
	Int8   = "INT8"
	Int16  = "INT16"
	Int32  = "INT32"
	Int64  = "INT64"
	FP16   = "FP16"
	BF16   = "BF16"
	FP32   = "FP32"
	FP64   = "FP64"
	Bytes  = "BYTES"
)

// Variable is the result of SizeOf for BYTES, because elements have different lengths.
const Variable = -1

// SizeOf returns the size in bytes of an element of datatype: Variable for BYTES, 0 for an unknown datatype.
func SizeOf(datatype string) int {
	switch datatype {
	case Bool, Uint8, Int8:
		return 1
	case Uint16, Int16, FP16, BF16:
		return 2
	case Uint32, Int32, FP32:
		return 4
	case Uint64, Int64, FP64:
		return 8
	case Bytes:
		return Variable
	}
	return 0
}

// Datatypes lists every datatype in the order of the messages.
const Datatypes = "BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64, BYTES"

// internDatatype returns the constant equal to b, without allocating a string.
func internDatatype(b []byte) (string, bool) {
	switch string(b) {
	case Bool:
		return Bool, true
	case Uint8:
		return Uint8, true
	case Uint16:
		return Uint16, true
	case Uint32:
		return Uint32, true
	case Uint64:
		return Uint64, true
	case Int8:
		return Int8, true
	case Int16:
		return Int16, true
	case Int32:
		return Int32, true
	case Int64:
		return Int64, true
	case FP16:
		return FP16, true
	case BF16:
		return BF16, true
	case FP32:
		return FP32, true
	case FP64:
		return FP64, true
	case Bytes:
		return Bytes, true
	}
	return "", false
}

// Elements returns the number of elements of a tensor with this shape; a shape without dimensions is a scalar with
// one element. The error is a *coded.Error whose Field is `shape` or `shape[i]`, for a negative dimension and for a
// product that does not fit an int (dimensions of 0 are left out of the product, so that the order does not matter).
func Elements(shape []int) (int, error) {
	n, zero := 1, false
	for i, d := range shape {
		if d < 0 {
			return 0, &coded.Error{Code: coded.InvalidArgument, Field: "shape" + index(i),
				Msg: "is " + itoa(d) + "; a dimension cannot be negative"}
		}
		if d == 0 {
			zero = true
			continue
		}
		hi, lo := bits.Mul64(uint64(n), uint64(d))
		if hi != 0 || lo > math.MaxInt {
			return 0, &coded.Error{Code: coded.InvalidArgument, Field: "shape", Msg: "is " + shapeText(shape) +
				", which causes total element count to exceed maximum size of " + itoa(math.MaxInt) +
				"; expected a smaller tensor"}
		}
		n = int(lo)
	}
	if zero {
		return 0, nil
	}
	return n, nil
}

// Tensor is a named array. Data is raw: little endian, row-major; for BYTES each element is a 32-bit length and its
// bytes. Data of a decoded binary tensor is a view into the message, at any alignment.
//
// Shared means that the data are in shared memory, named by the parameters SharedRegion, SharedOffset and SharedSize,
// and not in the message.
type Tensor struct {
	Name     string
	Datatype string
	Shape    []int
	Data     []byte
	Params   Params
	Shared   bool
}

// SizeMismatch is the error text for data of got instead of want bytes of an input of model; model is "" if the
// request names no model.
func SizeMismatch(t *Tensor, model string, want, got int) string {
	of := ""
	if model != "" {
		of = " for model " + quoted(model)
	}
	return "input byte size mismatch for input " + quoted(t.Name) + of + ". Expected " + itoa(want) + ", got " +
		itoa(got) + " for " + t.Datatype + " of shape " + shapeText(t.Shape)
}

// The parameters of a tensor with data in shared memory, or of an output to be written to shared memory.
const (
	SharedRegion = "shared_memory_region"
	SharedOffset = "shared_memory_offset"
	SharedSize   = "shared_memory_byte_size"
)

// RequestedOutput names a requested output. Binary means that its data must follow the JSON as raw bytes, by the
// output's own parameter or else by the request's.
type RequestedOutput struct {
	Name   string
	Binary bool
	Params Params

	explicit bool // the output has its own parameter binary_data
}

// InferRequest is an inference request. In the JSON form, BinaryOutput replaces the parameter binary_data_output:
// Params do not contain binary_data_output, the Params of a tensor do not contain binary_data_size, and the Params of
// an output do not contain binary_data. ModelName and ModelVersion are only in the gRPC form, whose outputs are
// always binary. Decoding into the same value again reuses slices and strings, so copy any that are needed later.
type InferRequest struct {
	ModelName    string
	ModelVersion string
	ID           string
	Params       Params
	Inputs       []Tensor
	Outputs      []RequestedOutput
	BinaryOutput bool

	dec   *decoder // kept for its memory
	proto *protoDecoder
}

// Reset empties r, drops all tensor data, and keeps the slices for reuse.
func (r *InferRequest) Reset() {
	r.Params = r.Params[:0]
	resetTensors(r.Inputs)
	r.Inputs = r.Inputs[:0]
	for i := range r.Outputs {
		o := &r.Outputs[i]
		o.Params, o.Binary, o.explicit = o.Params[:0], false, false
	}
	r.Outputs = r.Outputs[:0]
	r.BinaryOutput = false
	// The strings are kept for reuse; decoding sets them.
}

// WantsBinary reports whether the output with this name must be sent as raw bytes.
func (r *InferRequest) WantsBinary(name string) bool {
	for i := range r.Outputs {
		if r.Outputs[i].Name == name {
			return r.Outputs[i].Binary
		}
	}
	return r.BinaryOutput
}

// InferResponse is the reply to an InferRequest. Reuse works as for InferRequest.
type InferResponse struct {
	ModelName    string
	ModelVersion string
	ID           string
	Params       Params
	Outputs      []Tensor
	// NotFinite writes numbers that are not finite as NaN, Infinity and -Infinity, words that are not JSON but are
	// read by Python's json and other readers.
	NotFinite bool

	dec *decoder // kept for its memory
}

// Reset empties r, drops all tensor data, and keeps the slices for reuse.
func (r *InferResponse) Reset() {
	r.Params = r.Params[:0]
	resetTensors(r.Outputs)
	r.Outputs = r.Outputs[:0]
}

func resetTensors(ts []Tensor) {
	for i := range ts {
		t := &ts[i]
		t.Data, t.Shape, t.Params, t.Shared = nil, t.Shape[:0], t.Params[:0], false
	}
}

// Limits bounds the content of a message. A zero field has its default.
type Limits struct {
	MaxDepth    int // nesting of JSON values, and dimensions of a shape; 64
	MaxTensors  int // tensors in a message, and requested outputs; 64
	MaxElements int // elements of one tensor; 1<<28
	MaxName     int // bytes of a name, an id or a parameter's key; 1024
	MaxParams   int // parameters of one object; 64

	SharedMemory bool // tensors of a request may be Shared; the caller gets their data
}

func (l Limits) orDefaults() Limits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.MaxDepth, 64)
	def(&l.MaxTensors, 64)
	def(&l.MaxElements, 1<<28)
	def(&l.MaxName, 1024)
	def(&l.MaxParams, 64)
	return l
}
