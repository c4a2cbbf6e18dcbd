package wire_test

import (
	"errors"
	"testing"

	"millrace/internal/wire"
)

// Orders and calls are read by their exact names, each once; an order has nothing else, a call may have more.
func TestOrdersAndCallsAreReadStrictly(t *testing.T) {
	for _, c := range []struct {
		text  string
		rule  error // nil: accepted
		field string
	}{
		{`{"url":"rtsp://x/","model":"m"}`, nil, ""}, {`{"stop":true}`, nil, ""}, {`{}`, nil, ""},
		{`{"url":"a","url":"b"}`, wire.ErrTwice, "url"}, {`{"URL":"a"}`, wire.ErrUnknown, "URL"},
		{`{"url":"a","x":1}`, wire.ErrUnknown, "x"},
		{`{"url":7}`, wire.ErrValue, "url"}, {`{"stop":null}`, wire.ErrValue, "stop"},
		{`{"url":"a"}{}`, wire.ErrSyntax, ""}, {`[]`, wire.ErrSyntax, ""},
	} {
		var o wire.PullOrder
		check(t, c.text, wire.ParsePullOrder([]byte(c.text), &o), c.rule, c.field)
	}
	for _, c := range []struct {
		text  string
		rule  error
		field string
		id    string
	}{
		{`{"model":"m","id":"7","parameters":{},"inputs":[{"name":"url","shape":[1],"data":["a"]}]}`, nil, "", "7"},
		{`{"model":"m","id":1e3,"inputs":[]}`, nil, "", "1e3"}, {`{"model":"m","id":null}`, nil, "", ""},
		{`{"model":"m","model":"n","id":"a"}`, wire.ErrTwice, "model", "a"},
		{`{"inputs":[{"data":["a"],"data":[]}],"id":"b"}`, wire.ErrTwice, "inputs[0].data", "b"},
		{`{"model":"m","id":[1]}`, wire.ErrValue, "id", ""}, {`{"inputs":[{"data":[1]}],"id":"\u0063"}`, wire.ErrValue,
			"inputs[0].data[0]", "c"},
		{`{"id":"d","id":"e"}`, wire.ErrTwice, "id", "d"}, {`{`, wire.ErrSyntax, "", ""},
	} {
		var call wire.Call
		check(t, c.text, wire.ParseCall([]byte(c.text), &call), c.rule, c.field)
		if string(call.ID) != c.id {
			t.Errorf("%s: id %q, want %q", c.text, call.ID, c.id)
		}
	}
	var call wire.Call
	if err := wire.ParseCall([]byte(`{"Model":"m","INPUTS":[]}`), &call); err != nil || call.Model != "" {
		t.Errorf("%+v, %v", call, err)
	}
}

func check(t *testing.T, text string, err, rule error, field string) {
	t.Helper()
	var e *wire.Error
	if errors.As(err, &e); !errors.Is(err, rule) || rule != nil && e.Field != field {
		t.Errorf("%s: %v", text, err)
	}
}
