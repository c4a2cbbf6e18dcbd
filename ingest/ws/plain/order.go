package plain

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"millrace/ingest/ws/encode"
	"millrace/stream"
)

// order is a text message of a client: pull that video, or stop pulling.
type order struct {
	URL   string `json:"url"`
	Model string `json:"model"`
	Stop  bool   `json:"stop"`
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
			return bad(encode.Clip(wrong.Field), "is of the wrong type: want "+wrong.Type.String())
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return bad("", "the JSON of the text message ends early")
		}
		return bad("", "the text message is not understood: "+encode.Clip(err.Error()))
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
