package oip

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"millrace/stream/coded"
)

// protoDecoder has the parts of a message of the gRPC form whose meaning depends on later parts, as views into the
// message.
type protoDecoder struct {
	lim      Limits
	contents [][]byte // of each input; nil = none
	raw      [][]byte // raw_input_contents
}

// DecodeProto reads a ModelInferRequest, the infer request of the protocol's gRPC form, into dst, and resets dst
// first. The data of a tensor are a view into body where the message has the data in the needed form: raw contents,
// and typed contents of FP32 and FP64 in one piece. Other typed contents are written to memory from alloc, as for
// DecodeRequest.
//
// Unknown fields are ignored, as by every reader of protobuf. Errors and promises are as for DecodeRequest. After an
// error ModelName and ModelVersion are as in the part of the message already read, so that the refusal can be counted
// for the model.
func DecodeProto(dst *InferRequest, body []byte, alloc func(n int) []byte, lim Limits) error {
	dst.Reset()
	if dst.proto == nil {
		dst.proto = new(protoDecoder)
	}
	d := dst.proto
	defer d.reset()
	d.lim = lim.orDefaults()
	if err := d.request(dst, body); err != nil {
		return err
	}
	return d.data(dst, alloc)
}

func (d *protoDecoder) reset() {
	clear(d.contents)
	clear(d.raw)
	d.contents, d.raw = d.contents[:0], d.raw[:0]
}

func invalid(field, msg string) error {
	return &coded.Error{Code: coded.InvalidArgument, Field: field, Msg: msg}
}

// errNotProto is the error of bytes that are no message.
var errNotProto = invalid("", "the message is cut off or is not a ModelInferRequest in protobuf")

// protoField is one field of a message: data for types with a length, value for all others.
type protoField struct {
	number protowire.Number
	wire   protowire.Type
	value  uint64
	data   []byte
}

func (f *protoField) is(number protowire.Number, wire protowire.Type) bool {
	return f.number == number && f.wire == wire
}

// next reads the field at the start of b and returns the rest of b. Groups, not used by these messages, are skipped.
func (f *protoField) next(b []byte) (rest []byte, ok bool) {
	tag, n := uint64(0), 1
	if len(b) > 0 && b[0] < 0x80 {
		tag = uint64(b[0])
	} else if tag, n = protowire.ConsumeVarint(b); n < 0 {
		return nil, false
	}
	if number := tag >> 3; number < uint64(protowire.MinValidNumber) || number > uint64(protowire.MaxValidNumber) {
		return nil, false
	}
	b = b[n:]
	f.number, f.wire = protowire.Number(tag>>3), protowire.Type(tag&7)
	switch f.wire {
	case protowire.VarintType:
		f.value, n = protowire.ConsumeVarint(b)
	case protowire.Fixed32Type:
		var v uint32
		v, n = protowire.ConsumeFixed32(b)
		f.value = uint64(v)
	case protowire.Fixed64Type:
		f.value, n = protowire.ConsumeFixed64(b)
	case protowire.BytesType:
		f.data, n = protowire.ConsumeBytes(b)
	default:
		n = protowire.ConsumeFieldValue(f.number, f.wire, b)
	}
	if n < 0 {
		return nil, false
	}
	return b[n:], true
}

// text returns the string of f. If equal to old, old is returned instead of a copy. The field's path consists of list
// with index i, unless i is negative, and key.
func (d *protoDecoder) text(f *protoField, old, list string, i int, key string) (string, error) {
	if old == string(f.data) {
		return old, nil
	}
	switch {
	case len(f.data) > d.lim.MaxName:
		return "", invalid(pathOf(list, i, key), "has "+itoa(len(f.data))+" bytes; expected at most "+
			itoa(d.lim.MaxName))
	case !utf8.Valid(f.data):
		return "", invalid(pathOf(list, i, key), "is not UTF-8")
	}
	return string(f.data), nil
}

// pathOf is LIST[i].KEY, or KEY without a list.
func pathOf(list string, i int, key string) string {
	if list == "" {
		return key
	}
	return join(list+index(i), key)
}

func (d *protoDecoder) request(r *InferRequest, body []byte) error {
	var f protoField
	model, version, id := "", "", ""
	var err error
	for ok := true; len(body) > 0; {
		if body, ok = f.next(body); !ok {
			err = errNotProto
		} else if f.wire == protowire.BytesType {
			switch f.number {
			case 1:
				model, err = d.text(&f, r.ModelName, "", 0, "model_name")
			case 2:
				version, err = d.text(&f, r.ModelVersion, "", 0, "model_version")
			case 3:
				id, err = d.text(&f, r.ID, "", 0, "id")
			case 4:
				r.Params, err = d.param(r.Params, f.data, "", 0)
			case 5:
				err = d.input(r, f.data)
			case 6:
				err = d.output(r, f.data)
			case 7:
				if len(d.raw) == d.lim.MaxTensors {
					err = invalid("raw_input_contents", "has more than "+itoa(d.lim.MaxTensors)+" items")
				}
				d.raw = append(d.raw, f.data)
			}
		}
		if err != nil {
			break
		}
	}
	r.ModelName, r.ModelVersion, r.ID = model, version, id
	return err
}

func (d *protoDecoder) input(r *InferRequest, body []byte) error {
	i := len(r.Inputs)
	if i == d.lim.MaxTensors {
		return invalid("inputs", "has more than "+itoa(d.lim.MaxTensors)+" tensors")
	}
	r.Inputs = slices.Grow(r.Inputs, 1)[:i+1]
	t := &r.Inputs[i]
	t.Datatype, t.Data, t.Shape, t.Params, t.Shared = "", nil, t.Shape[:0], t.Params[:0], false
	var contents []byte
	var f protoField
	var name string
	var err error
	for ok := true; len(body) > 0; {
		if body, ok = f.next(body); !ok {
			return errNotProto
		}
		switch {
		case f.is(1, protowire.BytesType):
			name, err = d.text(&f, t.Name, "inputs", i, "name")
		case f.is(2, protowire.BytesType):
			if t.Datatype, ok = internDatatype(f.data); !ok {
				err = invalid(pathOf("inputs", i, "datatype"),
					"is "+strconv.Quote(string(f.data[:min(len(f.data), 24)]))+"; expected one of "+Datatypes)
			}
		case f.is(3, protowire.VarintType):
			t.Shape, err = d.dimension(t.Shape, f.value, i)
		case f.is(3, protowire.BytesType):
			for packed := f.data; len(packed) > 0 && err == nil; {
				v, n := protowire.ConsumeVarint(packed)
				if n < 0 {
					return errNotProto
				}
				packed = packed[n:]
				t.Shape, err = d.dimension(t.Shape, v, i)
			}
		case f.is(4, protowire.BytesType):
			t.Params, err = d.param(t.Params, f.data, "inputs", i)
		case f.is(5, protowire.BytesType):
			if contents != nil {
				return invalid(pathOf("inputs", i, "contents"), "is given twice; expected it once")
			}
			contents = f.data[:len(f.data):len(f.data)]
		}
		if err != nil {
			return err
		}
	}
	if t.Name = name; name == "" {
		return invalid(pathOf("inputs", i, "name"), "is missing or empty; expected the tensor's name")
	}
	for k := range r.Inputs[:i] {
		if r.Inputs[k].Name == name {
			return invalid(pathOf("inputs", i, "name"), "input "+quoted(name)+" already exists in request, as tensor "+
				itoa(k)+"; expected each name once")
		}
	}
	if t.Datatype == "" {
		return invalid(pathOf("inputs", i, "datatype"), "is missing; expected one of "+Datatypes)
	}
	if d.lim.SharedMemory && len(t.Params) > 0 {
		_, t.Shared = t.Params.Get(SharedRegion)
	}
	d.contents = append(d.contents, contents)
	return nil
}

func (d *protoDecoder) dimension(shape []int, v uint64, i int) ([]int, error) {
	switch {
	case len(shape) == d.lim.MaxDepth:
		return shape, invalid(pathOf("inputs", i, "shape"), "has more than "+itoa(d.lim.MaxDepth)+" dimensions")
	case int64(v) < 0:
		return shape, invalid(pathOf("inputs", i, "shape")+index(len(shape)), "is "+strconv.FormatInt(int64(v), 10)+
			"; a dimension cannot be negative")
	}
	return append(shape, int(v)), nil
}

func (d *protoDecoder) output(r *InferRequest, body []byte) error {
	i := len(r.Outputs)
	if i == d.lim.MaxTensors {
		return invalid("outputs", "has more than "+itoa(d.lim.MaxTensors)+" outputs")
	}
	r.Outputs = slices.Grow(r.Outputs, 1)[:i+1]
	o := &r.Outputs[i]
	o.Params, o.Binary, o.explicit = o.Params[:0], true, true
	var f protoField
	var name string
	var err error
	for ok := true; len(body) > 0; {
		if body, ok = f.next(body); !ok {
			return errNotProto
		}
		switch {
		case f.is(1, protowire.BytesType):
			name, err = d.text(&f, o.Name, "outputs", i, "name")
		case f.is(2, protowire.BytesType):
			o.Params, err = d.param(o.Params, f.data, "outputs", i)
		}
		if err != nil {
			return err
		}
	}
	if o.Name = name; name == "" {
		return invalid(pathOf("outputs", i, "name"), "is missing or empty; expected the output's name")
	}
	for k := range r.Outputs[:i] {
		if r.Outputs[k].Name == name {
			return invalid(pathOf("outputs", i, "name"),
				"output "+quoted(name)+" already exists in request, as output "+itoa(k)+"; expected each name once")
		}
	}
	return nil
}

// param reads an entry of a map of parameters. A later entry replaces an earlier entry with the same key.
func (d *protoDecoder) param(ps Params, body []byte, list string, i int) (Params, error) {
	var f protoField
	var old string
	if len(ps) < cap(ps) {
		old = ps[:len(ps)+1][len(ps)].Key
	}
	var p Param
	var err error
	for ok := true; len(body) > 0; {
		if body, ok = f.next(body); !ok {
			return ps, errNotProto
		}
		switch {
		case f.is(1, protowire.BytesType):
			if p.Key, err = d.text(&f, old, list, i, "parameters"); err != nil {
				return ps, err
			}
		case f.is(2, protowire.BytesType):
			if err := p.choose(f.data); err != "" {
				if err == errNotProto.Error() {
					return ps, errNotProto
				}
				return ps, invalid(pathOf(list, i, "parameters."+p.Key), err)
			}
		}
	}
	if p.Kind == 0 {
		return ps, invalid(pathOf(list, i, "parameters."+p.Key),
			"has no value; expected one of bool_param, int64_param, string_param, double_param and uint64_param")
	}
	for k := range ps {
		if ps[k].Key == p.Key {
			ps[k] = p
			return ps, nil
		}
	}
	if len(ps) == d.lim.MaxParams {
		return ps, invalid(pathOf(list, i, "parameters"), "has more than "+itoa(d.lim.MaxParams)+" parameters")
	}
	return append(ps, p), nil
}

// choose reads an InferParameter; the last given field counts. The result is the reason for a failure, or "".
func (p *Param) choose(body []byte) string {
	var f protoField
	key := p.Key
	for ok := true; len(body) > 0; {
		if body, ok = f.next(body); !ok {
			return errNotProto.Error()
		}
		switch {
		case f.is(1, protowire.VarintType):
			*p = Param{Kind: Boolean, Bool: f.value != 0}
		case f.is(2, protowire.VarintType):
			*p = Param{Kind: Int, Int: int64(f.value)}
		case f.is(3, protowire.BytesType):
			if !utf8.Valid(f.data) {
				return "is not UTF-8"
			}
			*p = Param{Kind: String, Str: string(f.data)}
		case f.is(4, protowire.Fixed64Type):
			*p = Param{Kind: Float, Float: math.Float64frombits(f.value)}
		case f.is(5, protowire.VarintType):
			if f.value > math.MaxInt64 && key == sequenceID {
				*p = Param{Kind: Uint, Int: int64(f.value)}
				break
			}
			if f.value > math.MaxInt64 {
				return "is " + utoa(f.value) + "; expected an integer of 64 bits with its sign"
			}
			*p = Param{Kind: Int, Int: int64(f.value)}
		}
	}
	p.Key = key
	return ""
}

// data assigns each input its data, after the whole message is read.
func (d *protoDecoder) data(r *InferRequest, alloc func(int) []byte) error {
	raw := d.raw
	for i := range r.Inputs {
		t := &r.Inputs[i]
		n, err := Elements(t.Shape)
		if err != nil {
			e := err.(*coded.Error)
			return invalid(pathOf("inputs", i, e.Field), e.Msg)
		}
		if n > d.lim.MaxElements {
			return invalid(pathOf("inputs", i, "shape"), d.lim.tooMany(t.Shape, n))
		}
		switch given := len(d.contents[i]) > 0; {
		case given && t.Shared:
			return invalid(pathOf("inputs", i, "contents"), "is given as well as "+SharedRegion+
				"; expected one of them")
		case given && len(d.raw) > 0:
			return invalid(pathOf("inputs", i, "contents"),
				"is given as well as raw_input_contents; expected one of them for all inputs")
		case t.Shared:
		case len(d.raw) > 0:
			if len(raw) == 0 {
				return d.rawCount(r)
			}
			t.Data, raw = raw[0][:len(raw[0]):len(raw[0])], raw[1:]
			if err := checkProtoRaw(t, n, i, r.ModelName); err != nil {
				return err
			}
		default:
			if err := d.typed(t, n, i, alloc); err != nil {
				return err
			}
		}
	}
	if len(raw) > 0 {
		return d.rawCount(r)
	}
	return nil
}

func (d *protoDecoder) rawCount(r *InferRequest) error {
	want := 0
	for i := range r.Inputs {
		if !r.Inputs[i].Shared {
			want++
		}
	}
	return invalid("raw_input_contents", "has "+itoa(len(d.raw))+" items; expected "+itoa(want)+
		", one for each input that is not in shared memory")
}

// checkProtoRaw checks the raw data of input i of model, of n elements.
func checkProtoRaw(t *Tensor, n, i int, model string) error {
	if t.Datatype == Bytes {
		switch k, msg := checkBytes(t.Data, n); {
		case msg == "":
			return nil
		case k < 0:
			return invalid(pathOf("inputs", i, "data"), msg+" for shape "+shapeText(t.Shape))
		default:
			return invalid(pathOf("inputs", i, "data")+index(k), msg)
		}
	}
	// A division, because the product may overflow.
	if one := SizeOf(t.Datatype); len(t.Data)%one != 0 || len(t.Data)/one != n {
		return invalid(pathOf("inputs", i, "data"), SizeMismatch(t, model, n*one, len(t.Data))+" in raw_input_contents")
	}
	return nil
}

// protoContents are the fields of InferTensorContents, by their numbers.
var protoContents = [...]struct {
	name string
	wire protowire.Type
}{
	1: {"bool_contents", protowire.VarintType},
	2: {"int_contents", protowire.VarintType},
	3: {"int64_contents", protowire.VarintType},
	4: {"uint_contents", protowire.VarintType},
	5: {"uint64_contents", protowire.VarintType},
	6: {"fp32_contents", protowire.Fixed32Type},
	7: {"fp64_contents", protowire.Fixed64Type},
	8: {"bytes_contents", protowire.BytesType},
}

// protoFieldOf is the field of InferTensorContents for a datatype, 0 for none.
func protoFieldOf(datatype string) protowire.Number {
	switch datatype {
	case Bool:
		return 1
	case Int8, Int16, Int32:
		return 2
	case Int64:
		return 3
	case Uint8, Uint16, Uint32:
		return 4
	case Uint64:
		return 5
	case FP32:
		return 6
	case FP64:
		return 7
	case Bytes:
		return 8
	}
	return 0
}

// typed reads the contents of input i, of n elements. typed counts the elements first, so that a shape without enough
// elements allocates nothing.
func (d *protoDecoder) typed(t *Tensor, n, i int, alloc func(int) []byte) error {
	fail := func(key, msg string) error { return invalid(pathOf("inputs", i, "contents"+key), msg) }
	want := protoFieldOf(t.Datatype)
	var f protoField
	var whole []byte // the data, if in one piece
	count, pieces, size := 0, 0, 0
	for body, ok := d.contents[i], true; len(body) > 0; {
		if body, ok = f.next(body); !ok {
			return errNotProto
		}
		if int(f.number) >= len(protoContents) {
			continue
		}
		elements, ok := f.count()
		if !ok {
			return errNotProto
		}
		if elements == 0 {
			continue
		}
		if f.number != want {
			name := "raw_input_contents"
			if want > 0 {
				name = protoContents[want].name
			}
			return fail("."+protoContents[f.number].name, "has elements of another type; expected those of "+
				t.Datatype+" in "+name)
		}
		count, pieces = count+elements, pieces+1
		size += 4 + len(f.data) // of BYTES
		whole = f.data
	}
	if count != n {
		if count == 0 {
			return fail("", "is missing; expected "+itoa(n)+" elements here, or their bytes in raw_input_contents")
		}
		return fail("."+protoContents[want].name, "has "+itoa(count)+" elements; expected "+itoa(n)+" for shape "+
			shapeText(t.Shape))
	}
	if n == 0 {
		return nil
	}
	if fixed := want == 6 || want == 7; fixed && pieces == 1 && len(whole) == n*SizeOf(t.Datatype) {
		t.Data = whole[:len(whole):len(whole)]
		return nil
	}
	if t.Datatype != Bytes {
		size = n * SizeOf(t.Datatype)
	}
	dst := alloc(size)
	if len(dst) < size {
		return noMemory(pathOf("inputs", i, "contents"), size)
	}
	dst = dst[:0:size]
	for body, at := d.contents[i], 0; len(body) > 0; {
		body, _ = f.next(body)
		if f.number != want {
			continue
		}
		var bad uint64
		var ok bool
		if dst, at, bad, ok = f.appendTo(dst, t.Datatype, at); !ok {
			r, _ := intRangeOf(t.Datatype)
			text := utoa(bad)
			low := "0"
			if r.below > 0 {
				text, low = strconv.FormatInt(int64(bad), 10), "-"+utoa(r.below)
			}
			return fail("."+protoContents[want].name+index(at), "is "+text+", which is outside of "+t.Datatype+" ("+
				low+" to "+utoa(r.above)+")")
		}
	}
	t.Data = dst
	return nil
}

// count returns the number of elements in a field of InferTensorContents: one, or the packed elements. The count is 0
// for another wire type: such a field is not part of the message. ok is false for malformed packed elements.
func (f *protoField) count() (n int, ok bool) {
	wire := protoContents[f.number].wire
	switch {
	case f.wire == wire:
		if wire != protowire.BytesType {
			f.data = nil
		}
		return 1, true
	case f.wire != protowire.BytesType:
		return 0, true
	case wire == protowire.Fixed32Type:
		return len(f.data) / 4, len(f.data)%4 == 0
	case wire == protowire.Fixed64Type:
		return len(f.data) / 8, len(f.data)%8 == 0
	}
	for b := f.data; len(b) > 0; n++ {
		_, size := protowire.ConsumeVarint(b)
		if size < 0 {
			return 0, false
		}
		b = b[size:]
	}
	return n, true
}

// appendTo appends the elements of a field of InferTensorContents in a tensor's form; at is the index of the first
// element. If an integer is out of the datatype's range, the integer and its index are returned, and ok is false.
func (f *protoField) appendTo(dst []byte, datatype string, at int) (out []byte, next int, bad uint64, ok bool) {
	le := binary.LittleEndian
	switch contents := protoContents[f.number]; {
	case contents.wire == protowire.BytesType && f.wire == protowire.BytesType:
		return AppendBytes(dst, f.data), at + 1, 0, true
	case contents.wire == protowire.Fixed32Type && f.wire == protowire.Fixed32Type:
		return le.AppendUint32(dst, uint32(f.value)), at + 1, 0, true
	case contents.wire == protowire.Fixed64Type && f.wire == protowire.Fixed64Type:
		return le.AppendUint64(dst, f.value), at + 1, 0, true
	case f.wire == protowire.VarintType && contents.wire == protowire.VarintType:
		dst, ok = appendInteger(dst, datatype, &f.value)
		return dst, at + 1, f.value, ok
	case f.wire != protowire.BytesType:
		return dst, at, 0, true
	case contents.wire != protowire.VarintType:
		return append(dst, f.data...), at, 0, true // all elements are in range
	}
	for b := f.data; len(b) > 0; at++ {
		v, n := uint64(b[0]), 1
		if v >= 0x80 {
			v, n = protowire.ConsumeVarint(b)
		}
		if dst, ok = appendInteger(dst, datatype, &v); !ok {
			return dst, at, v, false
		}
		b = b[n:]
	}
	return dst, at, 0, true
}

// appendInteger appends a number from a varint. *v is cut to the 32 bits of int_contents and uint_contents, and then
// appended unless out of the datatype's range.
func appendInteger(dst []byte, datatype string, v *uint64) ([]byte, bool) {
	le := binary.LittleEndian
	signed, unsigned := int32(*v), uint32(*v)
	switch datatype {
	case Bool:
		if *v != 0 {
			return append(dst, 1), true
		}
		return append(dst, 0), true
	case Int64, Uint64:
		return le.AppendUint64(dst, *v), true
	case Int32, Uint32:
		return le.AppendUint32(dst, unsigned), true
	case Int16:
		*v = uint64(int64(signed))
		return le.AppendUint16(dst, uint16(signed)), signed == int32(int16(signed))
	case Int8:
		*v = uint64(int64(signed))
		return append(dst, byte(signed)), signed == int32(int8(signed))
	case Uint16:
		*v = uint64(unsigned)
		return le.AppendUint16(dst, uint16(unsigned)), unsigned <= math.MaxUint16
	}
	*v = uint64(unsigned)
	return append(dst, byte(unsigned)), unsigned <= math.MaxUint8
}

// AppendProto appends r as a ModelInferResponse of the gRPC form, without its raw_output_contents: the caller appends
// an AppendProtoRaw and the data for each output. The error is a *coded.Error that names an output whose data do not
// match datatype and shape.
func AppendProto(dst []byte, r *InferResponse) ([]byte, error) {
	dst = appendProtoText(dst, 1, r.ModelName)
	dst = appendProtoText(dst, 2, r.ModelVersion)
	dst = appendProtoText(dst, 3, r.ID)
	dst = appendProtoParams(dst, 4, r.Params)
	for i := range r.Outputs {
		t := &r.Outputs[i]
		if err := checkProtoOutput(t, i); err != nil {
			return dst, err
		}
		size := protoTextSize(t.Name) + protoTextSize(t.Datatype) + protoParamsSize(t.Params)
		dims := 0
		for _, n := range t.Shape {
			dims += protowire.SizeVarint(uint64(n))
		}
		if dims > 0 {
			size += 1 + protowire.SizeBytes(dims)
		}
		dst = protowire.AppendVarint(append(dst, 5<<3|byte(protowire.BytesType)), uint64(size))
		dst = appendProtoText(dst, 1, t.Name)
		dst = appendProtoText(dst, 2, t.Datatype)
		if dims > 0 {
			dst = protowire.AppendVarint(append(dst, 3<<3|byte(protowire.BytesType)), uint64(dims))
			for _, n := range t.Shape {
				dst = protowire.AppendVarint(dst, uint64(n))
			}
		}
		dst = appendProtoParams(dst, 4, t.Params)
	}
	return dst, nil
}

// AppendProtoRaw appends the prefix of n bytes of raw_output_contents.
func AppendProtoRaw(dst []byte, n int) []byte {
	return protowire.AppendVarint(append(dst, 6<<3|byte(protowire.BytesType)), uint64(n))
}

func checkProtoOutput(t *Tensor, i int) error {
	one := SizeOf(t.Datatype)
	n, err := Elements(t.Shape)
	switch {
	case err != nil:
		return invalid(pathOf("outputs", i, "shape"), err.Error())
	case t.Shared:
	case one == Variable:
		if _, msg := checkBytes(t.Data, n); msg != "" {
			return invalid(pathOf("outputs", i, "data"), "has a broken element: it "+msg)
		}
	case one == 0:
		return invalid(pathOf("outputs", i, "datatype"), "is "+strconv.Quote(t.Datatype)+"; expected one of "+Datatypes)
	case len(t.Data)%one != 0 || len(t.Data)/one != n:
		return invalid(pathOf("outputs", i, "data"), strconv.Quote(t.Name)+" has "+itoa(len(t.Data))+
			" bytes, which is not "+t.Datatype+" of shape "+shapeText(t.Shape))
	}
	return nil
}

// appendProtoText appends a string field of protobuf, unless empty.
func appendProtoText(dst []byte, number byte, s string) []byte {
	if s == "" {
		return dst
	}
	dst = protowire.AppendVarint(append(dst, number<<3|byte(protowire.BytesType)), uint64(len(s)))
	return append(dst, s...)
}

func protoTextSize(s string) int {
	if s == "" {
		return 0
	}
	return 1 + protowire.SizeBytes(len(s))
}

// appendProtoParams appends the entries of a map of InferParameters.
func appendProtoParams(dst []byte, number byte, ps Params) []byte {
	for i := range ps {
		p := &ps[i]
		value := p.protoSize()
		dst = append(dst, number<<3|byte(protowire.BytesType))
		dst = protowire.AppendVarint(dst, uint64(protoTextSize(p.Key)+1+protowire.SizeBytes(value)))
		dst = appendProtoText(dst, 1, p.Key)
		dst = protowire.AppendVarint(append(dst, 2<<3|byte(protowire.BytesType)), uint64(value))
		switch p.Kind {
		case Boolean:
			dst = append(dst, 1<<3|byte(protowire.VarintType), byte(protowire.EncodeBool(p.Bool)))
		case Int:
			dst = protowire.AppendVarint(append(dst, 2<<3|byte(protowire.VarintType)), uint64(p.Int))
		case String:
			dst = protowire.AppendVarint(append(dst, 3<<3|byte(protowire.BytesType)), uint64(len(p.Str)))
			dst = append(dst, p.Str...)
		case Float:
			dst = binary.LittleEndian.AppendUint64(append(dst, 4<<3|byte(protowire.Fixed64Type)),
				math.Float64bits(p.Float))
		}
	}
	return dst
}

func protoParamsSize(ps Params) int {
	size := 0
	for i := range ps {
		size += 1 + protowire.SizeBytes(protoTextSize(ps[i].Key)+1+protowire.SizeBytes(ps[i].protoSize()))
	}
	return size
}

// protoSize is the size of the InferParameter with the value of p.
func (p *Param) protoSize() int {
	switch p.Kind {
	case Boolean:
		return 2
	case Int:
		return 1 + protowire.SizeVarint(uint64(p.Int))
	case String:
		return 1 + protowire.SizeBytes(len(p.Str))
	case Float:
		return 9
	}
	return 0
}

// AppendProtoInStream appends the prefix of a ModelInferResponse of n bytes in a ModelStreamInferResponse.
func AppendProtoInStream(dst []byte, n int) []byte {
	return protowire.AppendVarint(append(dst, 2<<3|byte(protowire.BytesType)), uint64(n))
}
