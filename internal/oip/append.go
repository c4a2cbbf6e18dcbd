package oip

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"millrace/stream/coded"
)

// AppendResponse appends the JSON of r to dst. binary selects the outputs that follow the JSON as raw bytes (nil:
// none); their JSON has binary_data_size instead of data, and BinaryParts returns the bytes. If there are any, send
// the length of the JSON as Inference-Header-Content-Length.
//
// The error is a *coded.Error that names the output: for data whose length does not match datatype and shape, and,
// wrapping ErrNotJSON, for values without a JSON notation (FP16, BF16, BYTES that are not UTF-8, and, unless
// r.NotFinite is set, NaN and infinities).
func AppendResponse(dst []byte, r *InferResponse, binary func(i int) bool) ([]byte, error) {
	return appendResponse(dst, r, binary, nil)
}

// appendResponse is AppendResponse. If cuts is not nil, appendResponse leaves out the elements of large tensors and
// appends their places to cuts.
func appendResponse(dst []byte, r *InferResponse, binary func(i int) bool, cuts *[]cut) ([]byte, error) {
	dst = append(dst, `{"model_name":`...)
	dst = AppendString(dst, r.ModelName)
	if r.ModelVersion != "" {
		dst = append(dst, `,"model_version":`...)
		dst = AppendString(dst, r.ModelVersion)
	}
	if r.ID != "" {
		dst = append(dst, `,"id":`...)
		dst = AppendString(dst, r.ID)
	}
	dst, err := appendMembers(append(dst, ','), r, binary, cuts)
	if err != nil {
		return dst, err
	}
	return append(dst, '}'), nil
}

// AppendMembers appends r's parameters and outputs in the form of AppendResponse, as members of an object begun and
// ended by the caller. binary and errors are as for AppendResponse.
func AppendMembers(dst []byte, r *InferResponse, binary func(i int) bool) ([]byte, error) {
	return appendMembers(dst, r, binary, nil)
}

func appendMembers(dst []byte, r *InferResponse, binary func(i int) bool, cuts *[]cut) ([]byte, error) {
	if len(r.Params) > 0 {
		var err error
		if dst, err = appendParams(append(dst, `"parameters":{`...), r.Params, ""); err != nil {
			return dst, err
		}
		dst = append(dst, "},"...)
	}
	return appendTensors(dst, "outputs", r.Outputs, binary, r.NotFinite, cuts)
}

// AppendRequest appends the JSON of r to dst, for a client; binary and errors are as for AppendResponse, about
// inputs. An output whose Binary differs from BinaryOutput gets its own parameter.
func AppendRequest(dst []byte, r *InferRequest, binary func(i int) bool) ([]byte, error) {
	dst = append(dst, '{')
	if r.ID != "" {
		dst = append(dst, `"id":`...)
		dst = AppendString(dst, r.ID)
		dst = append(dst, ',')
	}
	var err error
	if len(r.Params) > 0 || r.BinaryOutput {
		dst = append(dst, `"parameters":{`...)
		if r.BinaryOutput {
			dst = append(dst, `"binary_data_output":true`...)
			if len(r.Params) > 0 {
				dst = append(dst, ',')
			}
		}
		if dst, err = appendParams(dst, r.Params, ""); err != nil {
			return dst, err
		}
		dst = append(dst, "},"...)
	}
	if dst, err = appendTensors(dst, "inputs", r.Inputs, binary, true, nil); err != nil {
		return dst, err
	}
	if len(r.Outputs) == 0 {
		return append(dst, '}'), nil
	}
	dst = append(dst, `,"outputs":[`...)
	for i := range r.Outputs {
		o := &r.Outputs[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		dst = AppendString(dst, o.Name)
		if differs := o.Binary != r.BinaryOutput; differs || len(o.Params) > 0 {
			dst = append(dst, `,"parameters":{`...)
			if differs {
				dst = append(dst, `"binary_data":`...)
				dst = strconv.AppendBool(dst, o.Binary)
				if len(o.Params) > 0 {
					dst = append(dst, ',')
				}
			}
			if dst, err = appendParams(dst, o.Params, "outputs"+index(i)); err != nil {
				return dst, err
			}
			dst = append(dst, '}')
		}
		dst = append(dst, '}')
	}
	return append(dst, "]}"...), nil
}

// AlwaysBinary and NeverBinary are for the binary argument of AppendResponse, AppendRequest
// and BinaryParts.
func AlwaysBinary(int) bool { return true }

// NeverBinary is the opposite of AlwaysBinary: no tensor is sent as raw bytes.
func NeverBinary(int) bool { return false }

// BinaryParts appends the raw bytes of the tensors selected by binary, in the order of the JSON. The bytes are not
// copied from the tensors' Data.
func BinaryParts(dst [][]byte, tensors []Tensor, binary func(i int) bool) [][]byte {
	for i := range tensors {
		if binary != nil && binary(i) && !tensors[i].Shared {
			dst = append(dst, tensors[i].Data)
		}
	}
	return dst
}

// appendTensors appends `KEY: [...]`. words allows words for numbers that are not finite; cuts is as in
// appendResponse.
func appendTensors(dst []byte, key string, ts []Tensor, binary func(i int) bool, words bool,
	cuts *[]cut) ([]byte, error) {
	dst = append(dst, '"')
	dst = append(dst, key...)
	dst = append(dst, `":[`...)
	var err error
	for i := range ts {
		if i > 0 {
			dst = append(dst, ',')
		}
		raw := binary != nil && binary(i)
		if dst, err = appendTensor(dst, &ts[i], key, i, raw, words, cuts); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

func appendTensor(dst []byte, t *Tensor, key string, i int, raw, words bool, cuts *[]cut) ([]byte, error) {
	fail := func(part, msg string) *coded.Error {
		return &coded.Error{Code: coded.InvalidArgument, Field: key + index(i) + part, Msg: strconv.Quote(t.Name) +
			" " + msg}
	}
	one := SizeOf(t.Datatype)
	raw = raw && !t.Shared
	if one == 0 {
		return dst, fail(".datatype", "has the datatype "+strconv.Quote(t.Datatype)+"; expected one of "+Datatypes)
	}
	n, err := Elements(t.Shape)
	if err != nil {
		return dst, fail(".shape", err.Error())
	}
	switch {
	case t.Shared:
	case one == Variable:
		if _, msg := checkBytes(t.Data, n); msg != "" {
			return dst, fail(".data", "has a broken element: it "+msg)
		}
	case len(t.Data)%one != 0 || len(t.Data)/one != n:
		return dst, fail(".data", "has "+itoa(len(t.Data))+" bytes, which is not "+t.Datatype+" of shape "+
			shapeText(t.Shape))
	}
	dst = append(dst, `{"name":`...)
	dst = AppendString(dst, t.Name)
	dst = append(dst, `,"datatype":"`...)
	dst = append(dst, t.Datatype...)
	dst = append(dst, `","shape":`...)
	dst = appendShape(dst, t.Shape)
	if raw || len(t.Params) > 0 {
		dst = append(dst, `,"parameters":{`...)
		if raw {
			dst = append(dst, `"binary_data_size":`...)
			dst = strconv.AppendInt(dst, int64(len(t.Data)), 10)
			if len(t.Params) > 0 {
				dst = append(dst, ',')
			}
		}
		if len(t.Params) > 0 {
			if dst, err = appendParams(dst, t.Params, key+index(i)); err != nil {
				return dst, err
			}
		}
		dst = append(dst, '}')
	}
	if !raw && !t.Shared {
		dst = append(dst, `,"data":[`...)
		var at int
		var msg string
		if cuts != nil && len(t.Data) >= minCut {
			at, msg = checkData(t.Datatype, t.Data, words)
			*cuts = append(*cuts, cut{len(dst), t.Datatype, t.Data})
		} else {
			dst, at, msg = appendData(dst, t.Datatype, t.Data, words)
		}
		if msg != "" {
			err := fail(".data"+index(at), msg)
			err.Err = ErrNotJSON
			return dst, err
		}
		dst = append(dst, ']')
	}
	return append(dst, '}'), nil
}

func appendShape(dst []byte, shape []int) []byte {
	dst = append(dst, '[')
	for i, d := range shape {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(d), 10)
	}
	return append(dst, ']')
}

// smallInts holds "0," to "255,", each in four bytes, and the length of each.
var smallInts, smallLens = func() (text [256]uint32, lens [256]uint8) {
	for i := range text {
		var b [4]byte
		lens[i] = uint8(copy(b[:], strconv.Itoa(i)+","))
		text[i] = binary.LittleEndian.Uint32(b[:])
	}
	return
}()

// appendData appends the elements of data, flat, separated by commas. words allows words for numbers that are not
// finite. msg is "", or the reason why the element with index at cannot be written.
func appendData(dst []byte, datatype string, data []byte, words bool) (out []byte, at int, msg string) {
	le := binary.LittleEndian
	switch datatype {
	case Uint8:
		n := len(dst)
		dst = slices.Grow(dst, 4*len(data))[:n+4*len(data)]
		for _, v := range data {
			le.PutUint32(dst[n:], smallInts[v])
			n += int(smallLens[v])
		}
		dst = dst[:n]
	case Int8:
		for _, v := range data {
			dst = append(strconv.AppendInt(dst, int64(int8(v)), 10), ',')
		}
	case Uint16:
		for ; len(data) > 0; data = data[2:] {
			dst = append(strconv.AppendUint(dst, uint64(le.Uint16(data)), 10), ',')
		}
	case Int16:
		for ; len(data) > 0; data = data[2:] {
			dst = append(strconv.AppendInt(dst, int64(int16(le.Uint16(data))), 10), ',')
		}
	case Uint32:
		for ; len(data) > 0; data = data[4:] {
			dst = append(strconv.AppendUint(dst, uint64(le.Uint32(data)), 10), ',')
		}
	case Int32:
		for ; len(data) > 0; data = data[4:] {
			dst = append(strconv.AppendInt(dst, int64(int32(le.Uint32(data))), 10), ',')
		}
	case Uint64:
		for ; len(data) > 0; data = data[8:] {
			dst = append(strconv.AppendUint(dst, le.Uint64(data), 10), ',')
		}
	case Int64:
		for ; len(data) > 0; data = data[8:] {
			dst = append(strconv.AppendInt(dst, int64(le.Uint64(data)), 10), ',')
		}
	case Bool:
		for _, v := range data {
			dst = append(strconv.AppendBool(dst, v != 0), ',')
		}
	case FP32:
		for i := 0; i < len(data); i += 4 {
			v := float64(math.Float32frombits(le.Uint32(data[i:])))
			if v-v != 0 {
				if !words {
					return dst, i / 4, noNotation(v)
				}
				dst = append(appendNotFinite(dst, v), ',')
				continue
			}
			dst = append(appendReal(dst, v, 32), ',')
		}
	case FP64:
		for i := 0; i < len(data); i += 8 {
			v := math.Float64frombits(le.Uint64(data[i:]))
			if v-v != 0 {
				if !words {
					return dst, i / 8, noNotation(v)
				}
				dst = append(appendNotFinite(dst, v), ',')
				continue
			}
			dst = append(appendReal(dst, v, 64), ',')
		}
	case Bytes:
		if at, msg := checkText(data); msg != "" {
			return dst, at, msg
		}
		for {
			element, rest, ok := NextBytes(data)
			if !ok {
				break
			}
			dst = append(AppendString(dst, unsafeString(element)), ',')
			data = rest
		}
	default:
		return dst, 0, noDatatype(datatype)
	}
	if n := len(dst) - 1; n >= 0 && dst[n] == ',' {
		dst = dst[:n]
	}
	return dst, 0, ""
}

// noDatatype is why no element of a datatype can be written.
func noDatatype(datatype string) string { return "is " + datatype + ", which JSON does not have" }

// checkFinite returns the index of a number that is not finite, and the reason for the error.
func checkFinite(datatype string, data []byte) (at int, msg string) {
	le, one := binary.LittleEndian, SizeOf(datatype)
	for i := 0; i < len(data); i += one {
		var v float64
		if datatype == FP32 {
			v = float64(math.Float32frombits(le.Uint32(data[i:])))
		} else {
			v = math.Float64frombits(le.Uint64(data[i:]))
		}
		if v-v != 0 {
			return i / one, noNotation(v)
		}
	}
	return 0, ""
}

func noNotation(v float64) string {
	return "is " + strconv.FormatFloat(v, 'g', -1, 64) + ", which JSON does not have"
}

// appendReal appends the shortest text that reads as v. Whole numbers, frequent in outputs, are written as integers
// for speed; -0 keeps its sign.
func appendReal(dst []byte, v float64, bitSize int) []byte {
	if n := int64(v); float64(n) == v && n > -1<<24 && n < 1<<24 && (n != 0 || !math.Signbit(v)) {
		return strconv.AppendInt(dst, n, 10)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, bitSize)
}
