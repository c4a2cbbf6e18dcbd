package oip

import (
	"strconv"

	"millrace/stream/coded"
)

// DecodeRequest reads an infer request into dst, and resets dst first.
//
// headerLen is the value of Inference-Header-Content-Length: the length of the JSON at the start of body, or -1 if
// the header is absent and all of body is JSON. A length of 0 means one raw tensor: see RawRequest.
//
// Data of a binary tensor is a view into body. Data of a tensor in JSON is written to memory from alloc; alloc must
// return at least n bytes, with any content. alloc is called once for each such tensor with elements, after checking
// that the text is long enough for the elements; n is at most 4 times the length of the text. The caller owns this
// memory, also after an error. If alloc returns fewer than n bytes, the error wraps ErrMemory.
//
// Any other error is a *coded.Error with the path of the wrong value; dst is then partly filled. In an accepted
// request, the data of every tensor have the length required by datatype and shape, and all BYTES elements are within
// the data.
func DecodeRequest(dst *InferRequest, body []byte, headerLen int, alloc func(n int) []byte, lim Limits) error {
	dst.Reset()
	if dst.dec == nil {
		dst.dec = new(decoder)
	}
	defer dst.dec.reset()
	return dst.dec.request(dst, body, headerLen, alloc, lim)
}

// Members of a request.
const (
	rID = iota
	rParams
	rInputs
	rOutputs
)

func (d *decoder) request(r *InferRequest, body []byte, headerLen int, alloc func(int) []byte, lim Limits) error {
	if headerLen == 0 && len(body) > 0 {
		return &coded.Error{Code: coded.InvalidArgument, Msg: "the header length is 0, so the body is one raw " +
			"tensor without JSON; expected a model with one input for it"}
	}
	if err := d.start(body, headerLen, alloc, lim); err != nil {
		return err
	}
	var seen uint
	for first := true; ; first = false {
		key, done, err := d.nextKey(first)
		if err != nil {
			return err
		}
		if done {
			break
		}
		switch string(key) {
		case "id":
			d.enter("id", 0)
			if err := d.recordMember(&seen, rID); err != nil {
				return err
			}
			if d.optional() {
				r.ID = ""
			} else if r.ID, err = d.name(r.ID); err != nil {
				return err
			}
		case "parameters":
			d.enter("parameters", 0)
			if err := d.recordMember(&seen, rParams); err != nil {
				return err
			}
			var sp special
			if r.Params, sp, err = d.params(r.Params, ofRequest); err != nil {
				return err
			}
			r.BinaryOutput = sp.binary
		case "inputs":
			d.enter("inputs", 0)
			if err := d.recordMember(&seen, rInputs); err != nil {
				return err
			}
			if r.Inputs, err = d.tensors(r.Inputs); err != nil {
				return err
			}
		case "outputs":
			d.enter("outputs", 0)
			if err := d.recordMember(&seen, rOutputs); err != nil {
				return err
			}
			if d.optional() {
				break
			}
			if r.Outputs, err = d.requested(r.Outputs); err != nil {
				return err
			}
		default:
			if err := d.skip(1); err != nil {
				return err
			}
			continue
		}
		d.leave()
	}
	if seen&(1<<rID) == 0 {
		r.ID = ""
	}
	for i := range r.Outputs {
		if o := &r.Outputs[i]; !o.explicit {
			o.Binary = r.BinaryOutput
		}
	}
	return d.end()
}

// requested reads the outputs named by a request.
func (d *decoder) requested(outs []RequestedOutput) ([]RequestedOutput, error) {
	if d.peek() != '[' {
		return outs, d.unexpected("an array of outputs")
	}
	d.pos++
	outs = outs[:0]
	for {
		done, err := d.nextItem(len(outs) == 0)
		if done || err != nil {
			return outs, err
		}
		if len(outs) >= d.lim.MaxTensors {
			return outs, d.fail("has more than " + itoa(d.lim.MaxTensors) + " outputs")
		}
		if len(outs) < cap(outs) {
			outs = outs[:len(outs)+1]
		} else {
			outs = append(outs, RequestedOutput{})
		}
		d.enter("", len(outs)-1)
		o := &outs[len(outs)-1]
		if err := d.output(o); err != nil {
			return outs, err
		}
		for i := range outs[:len(outs)-1] {
			if outs[i].Name == o.Name {
				return outs, d.fail("output "+quoted(o.Name)+" already exists in request, as output "+itoa(i)+
					"; expected each name once", segment{key: "name"})
			}
		}
		d.leave()
	}
}

func (d *decoder) output(o *RequestedOutput) error {
	if err := d.openObject("an output object"); err != nil {
		return err
	}
	o.Params, o.Binary, o.explicit = o.Params[:0], false, false
	var seen uint
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
			if o.Name, err = d.name(o.Name); err != nil {
				return err
			}
			if o.Name == "" {
				return d.fail("is missing or empty; expected the output's name")
			}
		case "parameters":
			d.enter("parameters", 0)
			if err := d.recordMember(&seen, mParams); err != nil {
				return err
			}
			var sp special
			if o.Params, sp, err = d.params(o.Params, ofOutput); err != nil {
				return err
			}
			o.Binary, o.explicit = sp.binary, sp.binarySet
		default:
			if err := d.skip(d.deep + 1); err != nil {
				return err
			}
			continue
		}
		d.leave()
	}
	if seen&(1<<mName) == 0 {
		return d.fail("is missing or empty; expected the output's name", segment{key: "name"})
	}
	return nil
}

// RawRequest returns the request whose body is one raw tensor (header length 0). Name, datatype and shape are those
// of the model's only input; at most one dimension may be -1, and is computed from the length of body.
//
// The body of a BYTES tensor is its only element, without a length; its data are a copy in memory from alloc. Other
// data are a view into body. The request asks for binary outputs. Errors are as for DecodeRequest.
func RawRequest(dst *InferRequest, body []byte, name, datatype string, shape []int, alloc func(n int) []byte,
	lim Limits) error {
	dst.Reset()
	dst.ID, dst.BinaryOutput = "", true
	d := decoder{alloc: alloc}
	d.lim = lim.orDefaults()
	d.enter("inputs", 0)
	d.enter("", 0)
	if cap(dst.Inputs) == 0 {
		dst.Inputs = make([]Tensor, 1)
	}
	dst.Inputs = dst.Inputs[:1]
	t := &dst.Inputs[0]
	t.Name, t.Datatype, t.Shape = name, datatype, append(t.Shape[:0], shape...)
	one := SizeOf(datatype)
	if one == 0 {
		return d.fail("is "+strconv.Quote(datatype)+"; expected one of "+Datatypes, segment{key: "datatype"})
	}
	free, known := -1, 1
	for i, n := range t.Shape {
		if n != -1 {
			continue
		}
		if free >= 0 {
			return d.fail("The shape of the raw input "+quoted(name)+
				" can not be deduced because there are more than one variable-sized dimension in "+shapeText(shape)+
				"; send JSON with the shape", segment{key: "shape"})
		}
		free, t.Shape[i] = i, 1
	}
	known, err := d.elements(t.Shape)
	if err != nil {
		return err
	}
	if one == Variable {
		if known != 1 {
			return d.fail("For BYTE datatype raw input "+quoted(name)+
				", the model must have input shape [1], and it is "+shapeText(shape)+
				"; send JSON or a header length for more than one element", segment{key: "shape"})
		}
		data := alloc(4 + len(body))
		if len(data) < 4+len(body) {
			return noMemory(d.field(segment{key: "data"}), 4+len(body))
		}
		t.Data = AppendBytes(data[:0:4+len(body)], body)
		return nil
	}
	if free >= 0 && known > 0 && len(body)%(known*one) == 0 {
		t.Shape[free] = len(body) / (known * one)
		if known, err = d.elements(t.Shape); err != nil {
			return err
		}
	}
	if len(body) != known*one {
		return d.fail("has "+itoa(len(body))+" bytes; expected "+datatype+" of shape "+shapeText(shape),
			segment{key: "data"})
	}
	t.Data = body[:len(body):len(body)]
	return nil
}
