package plain

import (
	"encoding/json"
	"errors"

	"millrace/internal/wire"
	"millrace/stream"
)

// isValue reports whether a text message is JSON without a member of an order.
func isValue(text []byte) bool {
	if !json.Valid(text) {
		return false
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil {
		return true // an array, a string or a number
	}
	for _, of := range []string{"url", "stop"} {
		if _, has := object[of]; has {
			return false
		}
	}
	return true
}

// parseOrder parses a text message. Errors have the code InvalidArgument.
func parseOrder(text []byte) (o wire.PullOrder, err error) {
	bad := func(field, msg string) (wire.PullOrder, error) {
		return wire.PullOrder{}, stream.Errorf(stream.InvalidArgument, field, "%s", msg)
	}
	if err := wire.ParsePullOrder(text, &o); err != nil {
		var e *wire.Error
		if errors.As(err, &e) && e.Field == "" {
			return bad("", `the text message cannot be read: want {"url":"rtsp://...","model":"..."} or `+
				`{"stop":true}, and frames as binary messages: `+e.Msg)
		}
		return wire.PullOrder{}, err
	}
	switch {
	case o.Stop && (o.URL != "" || o.Model != ""):
		return bad("stop", "must be the only member")
	case !o.Stop && o.URL == "":
		return bad("url", `is missing: want {"url":"rtsp://..."} or {"stop":true}`)
	}
	return o, nil
}
