package oip

// DecodeResponse reads an infer reply into dst, and resets dst first. headerLen, alloc, lim, views and errors are as
// for DecodeRequest. A reply with an error instead of outputs is refused.
func DecodeResponse(dst *InferResponse, body []byte, headerLen int, alloc func(n int) []byte, lim Limits) error {
	dst.Reset()
	if dst.dec == nil {
		dst.dec = new(decoder)
	}
	defer dst.dec.reset()
	return dst.dec.response(dst, body, headerLen, alloc, lim)
}

// Members of a reply.
const (
	pModel = iota
	pVersion
	pID
	pParams
	pOutputs
)

func (d *decoder) response(r *InferResponse, body []byte, headerLen int, alloc func(int) []byte, lim Limits) error {
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
		case "model_name":
			err = d.label("model_name", &seen, pModel, &r.ModelName)
		case "model_version":
			err = d.label("model_version", &seen, pVersion, &r.ModelVersion)
		case "id":
			err = d.label("id", &seen, pID, &r.ID)
		case "parameters":
			d.enter("parameters", 0)
			if err = d.recordMember(&seen, pParams); err == nil {
				r.Params, _, err = d.params(r.Params, ofReply)
			}
		case "outputs":
			d.enter("outputs", 0)
			if err = d.recordMember(&seen, pOutputs); err == nil {
				r.Outputs, err = d.tensors(r.Outputs)
			}
		default:
			if err := d.skip(1); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		d.leave()
	}
	if seen&(1<<pOutputs) == 0 {
		return d.fail("is missing; expected an array of tensors", segment{key: "outputs"})
	}
	for bit, s := range [...]*string{pModel: &r.ModelName, pVersion: &r.ModelVersion, pID: &r.ID} {
		if seen&(1<<bit) == 0 {
			*s = ""
		}
	}
	return d.end()
}

// label reads an optional string of a reply.
func (d *decoder) label(key string, seen *uint, bit uint, into *string) (err error) {
	d.enter(key, 0)
	if err := d.recordMember(seen, bit); err != nil {
		return err
	}
	if d.optional() {
		*into = ""
		return nil
	}
	*into, err = d.name(*into)
	return err
}
