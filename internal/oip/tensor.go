package oip

import (
	"errors"
	"math"
	"strconv"

	"millrace/stream/coded"
)

// decoder reads one message: its JSON, and the raw tensors after the JSON.
type decoder struct {
	scanner
	rest   []byte // raw bytes after the JSON not yet assigned to a tensor
	binary bool   // the message has a header length, so raw tensors are possible
	alloc  func(int) []byte
}

// reset drops the message and keeps the memory for the next message.
func (d *decoder) reset() { *d = decoder{scanner: scanner{scratch: d.scratch, rows: d.rows}} }

// start splits body into JSON and raw bytes and moves to the JSON's object.
func (d *decoder) start(body []byte, headerLen int, alloc func(int) []byte, lim Limits) error {
	d.lim, d.alloc = lim.orDefaults(), alloc
	d.buf = body
	switch {
	case headerLen == 0:
		return &coded.Error{Code: coded.InvalidArgument,
			Msg: "the header length is 0, so the body is one raw tensor without JSON"}
	case headerLen > len(body):
		return &coded.Error{Code: coded.InvalidArgument, Msg: "the header length is " + itoa(headerLen) +
			", but the body has " + itoa(len(body)) + " bytes"}
	case headerLen < -1:
		return &coded.Error{Code: coded.InvalidArgument, Msg: "the header length is " + itoa(headerLen) +
			"; expected the length of the JSON in bytes"}
	case headerLen > 0:
		d.buf, d.rest, d.binary = body[:headerLen:headerLen], body[headerLen:], true
	}
	if len(d.buf) == 0 {
		return &coded.Error{Code: coded.InvalidArgument, Msg: "the body is empty; expected a JSON object"}
	}
	if len(d.buf) >= 3 && string(d.buf[:3]) == "\xef\xbb\xbf" {
		return &coded.Error{Code: coded.InvalidArgument,
			Msg: "begins with a byte order mark; expected JSON without one"}
	}
	d.space()
	return d.openObject("a JSON object")
}

// end checks that the whole message was read.
func (d *decoder) end() error {
	d.space()
	if d.pos != len(d.buf) {
		return d.unexpected("the end of the JSON")
	}
	if len(d.rest) != 0 {
		return &coded.Error{Code: coded.InvalidArgument,
			Msg: itoa(len(d.rest)) + " bytes of binary data are not used; expected the binary_data_size of the " +
				"tensors to cover all of it"}
	}
	return nil
}

// name reads a string of limited length. If equal to old, old is returned instead of a copy, so that repeated names
// need no allocation.
func (d *decoder) name(old string) (string, error) {
	b, err := d.text("a string")
	if err != nil {
		return "", err
	}
	if len(b) > d.lim.MaxName {
		return "", d.fail("has " + itoa(len(b)) + " bytes; expected at most " + itoa(d.lim.MaxName))
	}
	if old == string(b) {
		return old, nil
	}
	return string(b), nil
}

// optional reads null if null is the value of an optional member.
func (d *decoder) optional() bool { return d.literal("null") }

// recordMember records the reading of a member, and returns an error for a repeated member.
func (d *decoder) recordMember(seen *uint, bit uint) error {
	if *seen&(1<<bit) != 0 {
		return d.fail("is given twice; expected it once")
	}
	*seen |= 1 << bit
	return nil
}

// special has the parameters of the binary extension.
type special struct {
	size      int64 // binary_data_size, -1 without
	binary    bool  // binary_data or binary_data_output
	binarySet bool
}

// parameterOwner is the owner of parameters. Its value is the extension's key allowed there.
type parameterOwner string

const (
	ofTensor  parameterOwner = "binary_data_size"
	ofOutput  parameterOwner = "binary_data"
	ofRequest parameterOwner = "binary_data_output"
	ofReply   parameterOwner = ""
)

// params reads a parameters object into ps, and reuses the strings of ps.
func (d *decoder) params(ps Params, where parameterOwner) (Params, special, error) {
	ps, sp := ps[:0], special{size: -1}
	if d.optional() {
		return ps, sp, nil
	}
	if err := d.openObject("an object of parameters"); err != nil {
		return ps, sp, err
	}
	found := false
	for first := true; ; first = false {
		key, done, err := d.nextKey(first)
		if done || err != nil {
			return ps, sp, err
		}
		if len(key) > d.lim.MaxName {
			return ps, sp, d.fail("has a key of " + itoa(len(key)) + " bytes; expected at most " + itoa(d.lim.MaxName))
		}
		if where != "" && string(key) == string(where) {
			if found {
				return ps, sp, d.fail("is given twice; expected it once", segment{key: string(where)})
			}
			found = true
			if err := d.special(&sp, where); err != nil {
				return ps, sp, err
			}
			continue
		}
		for i := range ps {
			if ps[i].Key == string(key) {
				return ps, sp, d.fail("is given twice; expected it once", segment{key: string(key)})
			}
		}
		if len(ps) >= d.lim.MaxParams {
			return ps, sp, d.fail("has more than " + itoa(d.lim.MaxParams) + " parameters")
		}
		if len(ps) < cap(ps) {
			ps = ps[:len(ps)+1]
		} else {
			ps = append(ps, Param{})
		}
		p := &ps[len(ps)-1]
		if p.Key != string(key) {
			p.Key = string(key)
		}
		if err := d.param(p); err != nil {
			return ps, sp, err
		}
	}
}

// special reads the value of the extension's own parameter.
func (d *decoder) special(sp *special, where parameterOwner) error {
	at := segment{key: string(where)}
	if where != ofTensor {
		sp.binarySet, sp.binary = true, d.literal("true")
		if !sp.binary && !d.literal("false") {
			return d.fail("is "+d.describe(d.pos)+"; expected true or false", at)
		}
		return nil
	}
	from := d.pos
	if c := d.peek(); c == '-' || c >= '0' && c <= '9' {
		text, integer, err := d.number()
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(unsafeString(text), 10, 64)
		if integer && err == nil && size >= 0 {
			sp.size = size
			return nil
		}
	}
	return d.fail("is "+d.describe(from)+"; expected the number of bytes, 0 or more", at)
}

// sequenceID is the parameter with unsigned 64-bit values allowed.
const sequenceID = "sequence_id"

// param reads the value of a parameter. Its old value is reused or cleared.
func (d *decoder) param(p *Param) error {
	old := p.Str
	*p = Param{Key: p.Key}
	switch c := d.peek(); {
	case c == '"':
		b, err := d.text("a string")
		if err != nil {
			var e *coded.Error
			if errors.As(err, &e) {
				return d.fail(e.Msg, segment{key: p.Key})
			}
			return err
		}
		p.Kind = String
		if p.Str = old; old != string(b) {
			p.Str = string(b)
		}
		return nil
	case c == '-' || c >= '0' && c <= '9':
		text, integer, err := d.number()
		if err != nil {
			return err
		}
		if integer {
			p.Kind = Int
			if p.Int, err = strconv.ParseInt(unsafeString(text), 10, 64); err != nil {
				if n, err := strconv.ParseUint(unsafeString(text), 10, 64); err == nil &&
					(p.Key == sequenceID || p.Key == SharedOffset || p.Key == SharedSize) {
					p.Kind, p.Int = Uint, int64(n)
					return nil
				}
				return d.fail("is "+string(text[:min(len(text), 24)])+"; expected an integer of 64 bits with its sign",
					segment{key: p.Key})
			}
			return nil
		}
		p.Kind = Float
		if p.Float, err = strconv.ParseFloat(unsafeString(text), 64); err != nil {
			return d.fail("is "+string(text[:min(len(text), 24)])+", which is outside of FP64", segment{key: p.Key})
		}
		return nil
	case d.literal("true"):
		p.Kind, p.Bool = Boolean, true
		return nil
	case d.literal("false"):
		p.Kind = Boolean
		return nil
	}
	return d.fail("is "+d.describe(d.pos)+"; expected a string, a number, or true or false", segment{key: p.Key})
}

// tensors reads the array of inputs or outputs with data.
func (d *decoder) tensors(ts []Tensor) ([]Tensor, error) {
	if d.peek() != '[' {
		return ts, d.unexpected("an array of tensors")
	}
	d.pos++
	ts = ts[:0]
	for {
		done, err := d.nextItem(len(ts) == 0)
		if err != nil {
			return ts, err
		}
		if done {
			return ts, nil
		}
		if len(ts) >= d.lim.MaxTensors {
			return ts, d.fail("has more than " + itoa(d.lim.MaxTensors) + " tensors")
		}
		if len(ts) < cap(ts) {
			ts = ts[:len(ts)+1]
		} else {
			ts = append(ts, Tensor{})
		}
		d.enter("", len(ts)-1)
		t := &ts[len(ts)-1]
		if err := d.tensor(t); err != nil {
			return ts, err
		}
		for i := range ts[:len(ts)-1] {
			if ts[i].Name == t.Name {
				return ts, d.fail("input "+quoted(t.Name)+" already exists in request, as tensor "+itoa(i)+
					"; expected each name once", segment{key: "name"})
			}
		}
		d.leave()
	}
}

// Members of a tensor object.
const (
	mName = iota
	mDatatype
	mShape
	mParams
	mData
)

// tensor reads one tensor object. Data in JSON are read at once if datatype and shape precede the data, otherwise
// after the object's other members.
func (d *decoder) tensor(t *Tensor) error {
	if err := d.openObject("a tensor object"); err != nil {
		return err
	}
	t.Data, t.Datatype, t.Shape, t.Params, t.Shared = nil, "", t.Shape[:0], t.Params[:0], false
	var seen uint
	var elements int
	dataAt := -1
	sp := special{size: -1}
	for first := true; ; first = false {
		key, done, err := d.nextKey(first)
		if err != nil {
			return err
		}
		if done {
			break
		}
		switch string(key) {
		case "name":
			d.enter("name", 0)
			if err := d.recordMember(&seen, mName); err != nil {
				return err
			}
			if t.Name, err = d.name(t.Name); err != nil {
				return err
			}
			if t.Name == "" {
				return d.fail("is missing or empty; expected the tensor's name")
			}
		case "datatype":
			d.enter("datatype", 0)
			if err := d.recordMember(&seen, mDatatype); err != nil {
				return err
			}
			b, err := d.text("a string")
			if err != nil {
				return err
			}
			var ok bool
			if t.Datatype, ok = internDatatype(b); !ok && len(b) == 0 {
				return d.fail("is missing; expected one of " + Datatypes)
			} else if !ok {
				return d.fail("is " + strconv.Quote(string(b[:min(len(b), 24)])) + "; expected one of " + Datatypes)
			}
		case "shape":
			d.enter("shape", 0)
			if err := d.recordMember(&seen, mShape); err != nil {
				return err
			}
			if t.Shape, err = d.shape(t.Shape); err != nil {
				return err
			}
			d.leave()
			if elements, err = d.elements(t.Shape); err != nil {
				return err
			}
			continue
		case "parameters":
			d.enter("parameters", 0)
			if err := d.recordMember(&seen, mParams); err != nil {
				return err
			}
			if t.Params, sp, err = d.params(t.Params, ofTensor); err != nil {
				return err
			}
			if d.lim.SharedMemory && len(t.Params) > 0 {
				_, t.Shared = t.Params.Get(SharedRegion)
			}
		case "data":
			d.enter("data", 0)
			if err := d.recordMember(&seen, mData); err != nil {
				return err
			}
			switch {
			case d.peek() != '[':
				return d.unexpected("an array")
			case seen&(1<<mDatatype|1<<mShape) == 1<<mDatatype|1<<mShape && sp.size < 0:
				if t.Data, err = d.readData(t.Datatype, t.Shape, elements, d.alloc); err != nil {
					return err
				}
			default:
				dataAt = d.pos
				if err := d.skipArray(); err != nil {
					return err
				}
			}
		default:
			if err := d.skip(d.deep + 1); err != nil {
				return err
			}
			continue
		}
		d.leave()
	}
	switch {
	case seen&(1<<mName) == 0:
		return d.fail("is missing or empty; expected the tensor's name", segment{key: "name"})
	case seen&(1<<mDatatype) == 0:
		return d.fail("is missing; expected one of "+Datatypes, segment{key: "datatype"})
	case seen&(1<<mShape) == 0:
		return d.fail("is missing; expected an array of dimensions", segment{key: "shape"})
	case t.Shared && (sp.size >= 0 || seen&(1<<mData) != 0):
		return d.fail("is given as well as data; expected one of them", segment{key: "parameters"},
			segment{key: SharedRegion})
	case t.Shared:
		return nil
	case sp.size >= 0 && seen&(1<<mData) != 0:
		return d.fail("is given as well as binary_data_size; expected one of them", segment{key: "data"})
	case sp.size >= 0:
		return d.raw(t, elements, sp.size)
	case seen&(1<<mData) == 0:
		return d.fail("is missing; expected an array, or parameters.binary_data_size", segment{key: "data"})
	}
	if dataAt < 0 {
		return nil
	}
	after := d.pos
	d.pos = dataAt
	d.enter("data", 0)
	var err error
	if t.Data, err = d.readData(t.Datatype, t.Shape, elements, d.alloc); err != nil {
		return err
	}
	d.leave()
	d.pos = after
	return nil
}

// shape reads an array of dimensions.
func (d *decoder) shape(shape []int) ([]int, error) {
	if d.peek() != '[' {
		return shape, d.unexpected("an array of dimensions")
	}
	d.pos++
	shape = shape[:0]
	for {
		done, err := d.nextItem(len(shape) == 0)
		if done || err != nil {
			return shape, err
		}
		if len(shape) >= d.lim.MaxDepth {
			return shape, d.fail("has more than " + itoa(d.lim.MaxDepth) + " dimensions")
		}
		at := segment{i: len(shape)}
		from := d.pos
		v, end, ok := scanDigits(d.buf, d.pos)
		switch {
		case d.peek() == '-':
			return shape, d.fail("is "+d.describe(from)+"; a dimension cannot be negative", at)
		case ok && end < len(d.buf) && wordByte(d.buf[end]):
			return shape, d.fail("is "+d.describe(from)+"; expected an integer", at)
		case ok && v <= math.MaxInt:
		case end > d.pos:
			return shape, d.fail("is "+d.describe(from)+", which is too large for a dimension", at)
		default:
			return shape, d.fail("is "+d.describe(from)+"; expected an integer", at)
		}
		shape = append(shape, int(v))
		d.pos = end
	}
}

// elements returns the number of elements of a shape, within the limit.
func (d *decoder) elements(shape []int) (int, error) {
	n, err := Elements(shape)
	if err != nil {
		var e *coded.Error
		if errors.As(err, &e) {
			return 0, d.fail(e.Msg, segment{key: e.Field})
		}
		return 0, err
	}
	if n > d.lim.MaxElements || n > math.MaxInt/16 {
		return 0, d.fail(d.lim.tooMany(shape, n), segment{key: "shape"})
	}
	return n, nil
}

// tooMany is the error text for a shape with n elements, above the limit.
func (l Limits) tooMany(shape []int, n int) string {
	if n > math.MaxInt/16 {
		return "is " + shapeText(shape) + ", a byte size overflow for inputs and outputs; expected at most " +
			itoa(l.MaxElements) + " elements"
	}
	return "is " + shapeText(shape) + ", " + itoa(n) + " elements; expected at most " + itoa(l.MaxElements)
}

// raw assigns a tensor its bytes after the JSON.
func (d *decoder) raw(t *Tensor, elements int, size int64) error {
	at := []segment{{key: "parameters"}, {key: string(ofTensor)}}
	if !d.binary {
		return d.fail("needs the header Inference-Header-Content-Length with the length of the JSON", at...)
	}
	if size > int64(len(d.rest)) {
		return d.fail("is "+strconv.FormatInt(size, 10)+"; expected at most the remaining "+itoa(len(d.rest))+
			" bytes of the body", at...)
	}
	if one := SizeOf(t.Datatype); one > 0 && size != int64(one)*int64(elements) {
		return d.fail("is "+strconv.FormatInt(size, 10)+"; expected "+itoa(one*elements)+" for "+t.Datatype+
			" of shape "+shapeText(t.Shape), at...)
	}
	t.Data = d.rest[:size:size]
	d.rest = d.rest[size:]
	return d.checkRaw(t, elements)
}

// checkRaw checks the content of raw data.
func (d *decoder) checkRaw(t *Tensor, elements int) error {
	if t.Datatype != Bytes {
		return nil
	}
	switch k, msg := checkBytes(t.Data, elements); {
	case msg == "":
		return nil
	case k < 0:
		return d.fail(msg+" for shape "+shapeText(t.Shape), segment{key: "data"})
	default:
		return d.fail(msg, segment{key: "data"}, segment{i: k})
	}
}
