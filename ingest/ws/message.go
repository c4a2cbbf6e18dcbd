package ws

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"millrace/stream"
)

// maxText bounds a text message.
const maxText = 64 << 10

// order is a text message of a client: pull that video, or stop pulling.
type order struct {
	URL   string `json:"url"`
	Model string `json:"model"`
	Stop  bool   `json:"stop"`

	id string // of a call, given back with each reply
}

// parseCall reads a call: an Open Inference Protocol request as JSON, with the
// model's name, whose one input holds the address of a video. With an error comes
// the call's id, if that could be read.
func parseCall(text []byte) (o order, err error) {
	bad := func(field, format string, args ...any) (order, error) {
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
	o.id = string(call.ID)
	if err != nil {
		return bad("", "%s", `the call is not understood: want {"model":"...","id":"...","inputs":[{"name":"url","datatype":"BYTES","shape":[1],"data":["https://..."]}]}: `+clip(err.Error()))
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

// parseOrder reads a text message. Its errors are coded InvalidArgument.
func parseOrder(text []byte) (o order, err error) {
	bad := func(field, msg string) (order, error) {
		return order{}, stream.Errorf(stream.InvalidArgument, field, "%s", msg)
	}
	if t := bytes.TrimLeft(text, " \t\r\n"); len(t) == 0 || t[0] != '{' {
		return bad("", `a text message is a JSON object, {"url":"rtsp://...","model":"..."} or {"stop":true}; send frames as binary messages`)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return bad(clip(wrong.Field), "is of the wrong type: want "+wrong.Type.String())
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return bad("", "the JSON of the text message ends early")
		}
		return bad("", "the text message is not understood: "+clip(err.Error()))
	}
	if _, err := d.Token(); err != io.EOF {
		return bad("", "there is more behind the JSON object of the text message")
	}
	switch {
	case o.Stop && (o.URL != "" || o.Model != ""):
		return bad("stop", "stands alone")
	case !o.Stop && o.URL == "":
		return bad("url", `is missing: want {"url":"rtsp://..."} or {"stop":true}`)
	}
	return o, nil
}
