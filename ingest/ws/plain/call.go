package plain

import (
	"errors"

	"millrace/internal/wire"
	"millrace/stream"
)

// parseCall parses a call. With an error, parseCall still returns the call's id if the id is readable.
func parseCall(text []byte) (o pullOrder, err error) {
	bad := func(field, format string, args ...any) (pullOrder, error) {
		return o, stream.Errorf(stream.InvalidArgument, field, format, args...)
	}
	var call wire.Call
	err = wire.ParseCall(text, &call)
	o.Call.ID = string(call.ID)
	if p := call.Parameters; p != nil {
		o.Call.Key = string(p.Key)
	}
	if err != nil {
		var e *wire.Error
		if errors.As(err, &e) && e.Field == "" {
			return bad("", "%s", `the call cannot be read: want `+
				`{"model":"...","id":"...","inputs":[{"name":"url","datatype":"BYTES","shape":[1],"data":["https://`+
				`..."]}]}: `+e.Msg)
		}
		return o, err
	}
	switch {
	case call.Model == "":
		return bad("model", "is missing")
	case len(call.Inputs) == 0 || len(call.Inputs[0].Data) == 0:
		return bad("inputs", "are missing: want one with the address of a video")
	case len(call.Inputs) > 1:
		return bad("inputs[1]", "is not allowed: a call has one input, the address of a video")
	case len(call.Inputs[0].Data) > 1:
		return bad("inputs[0].data", "has %d addresses: send a call for each", len(call.Inputs[0].Data))
	}
	for _, at := range []struct {
		p     *wire.CallParameters
		field string
	}{{call.Parameters, "parameters.count"}, {call.Inputs[0].Parameters, "inputs[0].parameters.count"}} {
		if at.p == nil || at.p.Count == nil {
			continue
		}
		if o.Count = *at.p.Count; o.Count == 0 {
			return bad(at.field, "is 0: want how many frames are to be answered, 1 or more, or leave it out for all")
		}
	}
	o.URL, o.Model = call.Inputs[0].Data[0], call.Model
	return o, nil
}
