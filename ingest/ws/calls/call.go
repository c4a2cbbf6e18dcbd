package calls

import (
	"encoding/json"
	"errors"

	"millrace/ingest/ws/encode"
	"millrace/ingest/ws/pull"
	"millrace/stream"
)

// parseCall reads a call: an Open Inference Protocol request as JSON, with the
// model's name, whose one input holds the address of a video. With an error comes
// the call's id, if that could be read.
func parseCall(text []byte) (o pull.Order, err error) {
	bad := func(field, format string, args ...any) (pull.Order, error) {
		return o, stream.Errorf(stream.InvalidArgument, field, format, args...)
	}
	var call struct {
		Model  string `json:"model"`
		ID     callID `json:"id"`
		Inputs []struct {
			Data []any `json:"data"`
		} `json:"inputs"`
	}
	err = json.Unmarshal(text, &call)
	o.ID = string(call.ID)
	if err != nil {
		return bad("", "%s", `the call is not understood: want {"model":"...","id":"...","inputs":[{"name":"url","datatype":"BYTES","shape":[1],"data":["https://..."]}]}: `+encode.Clip(err.Error()))
	}
	switch {
	case call.Model == "":
		return bad("model", "is missing")
	case len(call.Inputs) == 0 || len(call.Inputs[0].Data) == 0:
		return bad("inputs", "are missing: want one, which holds the address of a video")
	case len(call.Inputs) > 1:
		return bad("inputs[1]", "is one too many: a call has one input, the address of a video")
	case len(call.Inputs[0].Data) > 1:
		return bad("inputs[0].data", "holds %d addresses: send a call for each", len(call.Inputs[0].Data))
	}
	url, ok := call.Inputs[0].Data[0].(string)
	if !ok {
		return bad("inputs[0].data", "is not the address of a video")
	}
	o.URL, o.Model = url, call.Model
	return o, nil
}

// callID is the id of a call, which is text; a number is taken as it is written.
type callID string

// UnmarshalJSON implements json.Unmarshaler.
func (id *callID) UnmarshalJSON(text []byte) error {
	switch text[0] {
	case 'n': // null
		return nil
	case '"':
		return json.Unmarshal(text, (*string)(id))
	case '{', '[', 't', 'f':
		return errors.New("id: is neither text nor a number")
	}
	*id = callID(text)
	return nil
}
