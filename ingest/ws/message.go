package ws

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
// model's name, whose first input holds the address of a video.
func parseCall(text []byte) (o order, err error) {
	bad := func(field, msg string) (order, error) {
		return order{}, stream.Errorf(stream.InvalidArgument, field, "%s", msg)
	}
	var call struct {
		Model  string `json:"model"`
		ID     any    `json:"id"`
		Inputs []struct {
			Data []any `json:"data"`
		} `json:"inputs"`
	}
	if err := json.Unmarshal(text, &call); err != nil {
		return bad("", `the call is not understood: want {"model":"...","id":"...","inputs":[{"name":"url","datatype":"BYTES","shape":[1],"data":["https://..."]}]}: `+clip(err.Error()))
	}
	switch {
	case call.Model == "":
		return bad("model", "is missing")
	case len(call.Inputs) == 0 || len(call.Inputs[0].Data) == 0:
		return bad("inputs", "are missing: the first one holds the address of a video")
	}
	url, ok := call.Inputs[0].Data[0].(string)
	if !ok {
		return bad("inputs[0].data", "is not the address of a video")
	}
	o = order{URL: url, Model: call.Model}
	if call.ID != nil {
		o.id = fmt.Sprint(call.ID)
	}
	return o, nil
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
