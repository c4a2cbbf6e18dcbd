package oip

import "millrace/stream/coded"

// AppendGenerated appends the reply to a generate request as JSON: an object with the model's name and version, the
// id (if any), and each output and parameter under its own name. A single-element output becomes the element, any
// other output a flat array. Errors are as for AppendResponse.
func AppendGenerated(dst []byte, r *InferResponse) ([]byte, error) {
	dst = AppendString(append(dst, `{"model_name":`...), r.ModelName)
	dst = AppendString(append(dst, `,"model_version":`...), r.ModelVersion)
	if r.ID != "" {
		dst = AppendString(append(dst, `,"id":`...), r.ID)
	}
	var err error
	for i := range r.Params {
		if outputOf(r, r.Params[i].Key) {
			continue
		}
		if dst, err = appendParams(append(dst, ','), r.Params[i:i+1], ""); err != nil {
			return dst, err
		}
	}
	for i := range r.Outputs {
		t := &r.Outputs[i]
		n, err := Elements(t.Shape)
		if err != nil {
			return dst, &coded.Error{Code: coded.InvalidArgument, Field: "outputs" + index(i) + ".shape",
				Msg: err.Error()}
		}
		dst = append(AppendString(append(dst, ','), t.Name), ':')
		if n != 1 {
			dst = append(dst, '[')
		}
		var at int
		var msg string
		if dst, at, msg = appendData(dst, t.Datatype, t.Data, true); msg != "" {
			return dst, &coded.Error{Code: coded.InvalidArgument, Field: "outputs" + index(i) + ".data" + index(at),
				Msg: msg, Err: ErrNotJSON}
		}
		if n != 1 {
			dst = append(dst, ']')
		}
	}
	return append(dst, '}'), nil
}

func outputOf(r *InferResponse, name string) bool {
	for i := range r.Outputs {
		if r.Outputs[i].Name == name {
			return true
		}
	}
	return false
}
