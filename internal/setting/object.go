package setting

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"millrace/stream/coded"
)

// SetRequest sets a value from a request. The error is for a setting not allowed in requests, and for a value larger
// than both the limit for requests and the present value.
func (f Field) SetRequest(v any) error {
	if f.Request == "" {
		return f.errorf("can only be set in the server's configuration")
	}
	asked, err := f.readAny(v)
	if err != nil {
		return err
	}
	if f.Request != "any" {
		most := f.read(f.Request)
		if own, set := f.get(); set && number(own) > number(most) {
			most = own
		}
		if number(asked) > number(most) {
			return f.errorf("%s is more than the %s that a request may ask for: only the server's configuration can "+
				"set it", f.text(asked), f.text(most))
		}
	}
	f.put(asked)
	return nil
}

// FindRequest returns the setting named in a request by the path or a short name.
func (t *Table) FindRequest(name string) (Field, bool) {
	for _, f := range t.fields {
		if f.Path == name || slices.Contains(f.Short, name) {
			return f, true
		}
	}
	return Field{}, false
}

// SetObject sets the members of an object with set, i.e. Field.SetAny or Field.SetRequest. A member is a setting, or
// an object with the settings of a section. The error has each unknown or wrong member.
func (t *Table) SetObject(object map[string]any, set func(Field, any) error) error {
	return Join(t.setObject("", object, set)...)
}

func (t *Table) setObject(at string, object map[string]any, set func(Field, any) error) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		path := join(at, name)
		v := object[name]
		f, known := t.Find(path)
		l, isList := t.FindList(path)
		n, isNames := t.FindNames(path)
		inner, isObject := v.(map[string]any)
		switch {
		case isNames && v != nil:
			if err := n.setObject(v); err != nil {
				errs = append(errs, err)
			}
		case (isList || isNames) && v == nil: // like leaving the setting out
		case isList:
			errs = append(errs, l.setEntries(v, set)...)
		case strings.Contains(name, ".") || !known && !t.IsSection(path):
			errs = append(errs, t.Unknown(path))
		case !known && isObject:
			errs = append(errs, t.setObject(path, inner, set)...)
		case !known:
			errs = append(errs, coded.Errorf(coded.InvalidArgument, path, "is a section: it has %s",
				strings.Join(t.Below(path), ", ")))
		case v == nil: // like leaving the setting out
		default:
			if err := set(f, v); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// SetJSON reads the object of a JSON text, see SetObject.
func (t *Table) SetJSON(text []byte, set func(Field, any) error) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return fmt.Errorf("is not a JSON object: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("is not one JSON object: more text follows it")
	}
	return t.SetObject(object, set)
}

// Object returns the values that are set, in the form of SetObject, for a file or a reply in JSON.
func (t *Table) Object() map[string]any {
	out := map[string]any{}
	for _, f := range t.fields {
		if _, set := f.get(); !set {
			continue
		}
		putAt(out, f.Path, f.Value())
	}
	for _, l := range t.lists {
		if l.Len() > 0 {
			putAt(out, l.Path, l.objects())
		}
	}
	for _, n := range t.names {
		if m := n.get(); len(m) > 0 {
			object := map[string]any{}
			for key, value := range m {
				object[key] = value
			}
			putAt(out, n.Path, object)
		}
	}
	return out
}

// putAt puts a value into an object, at a path in which dots separate objects.
func putAt(in map[string]any, path string, v any) {
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		next, ok := in[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			in[name] = next
		}
		in = next
	}
	in[names[len(names)-1]] = v
}

// Value returns the value of the field in the form of SetAny: a string, a bool, an int64, a
// float64, or a list of these.
func (f Field) Value() any {
	v, _ := f.get()
	switch {
	case !v.IsValid():
		return nil
	case f.textMethod || f.typ == durationType && f.unit != "ms":
		return f.text(v)
	case f.unit == "ms":
		return v.Int() / int64(time.Millisecond)
	case v.CanInt():
		return v.Int()
	case v.Kind() == reflect.String:
		return v.String()
	}
	return v.Interface()
}

// Param returns the value of a field that is set, in the form for Table.SetParam, or nil.
func (f Field) Param() any {
	if _, set := f.get(); !set {
		return nil
	}
	if !f.IsList() {
		return f.Value()
	}
	text, err := json.Marshal(f.Value())
	if err != nil {
		panic(err) // the elements are plain values
	}
	return string(text)
}
