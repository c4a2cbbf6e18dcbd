package streams

import (
	"encoding/json"
	"reflect"
	"strings"
)

// wrongType says what is wrong with a value, behind its name: in JSON's words, as
// Go's types say nothing to who wrote it.
func wrongType(e *json.UnmarshalTypeError) string {
	want := "an object"
	switch e.Type.Kind() {
	case reflect.Bool:
		want = "true or false"
	case reflect.String:
		want = "text"
	case reflect.Slice:
		want = "a list"
	case reflect.Int, reflect.Int64:
		want = "a whole number"
	case reflect.Float64:
		want = "a number"
	}
	if number, ok := strings.CutPrefix(e.Value, "number "); ok { // only where a number was wanted
		if want == "a whole number" && strings.ContainsAny(number, ".eE") {
			return "is the number " + number + ": want a whole number, in digits only"
		}
		return "is the number " + number + ", which is out of range"
	}
	is := e.Value
	switch is {
	case "bool":
		is = "true or false"
	case "string":
		is = "text"
	case "array":
		is = "a list"
	case "object":
		is = "an object"
	case "number":
		is = "a number"
	}
	return "is " + is + ": want " + want
}
