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

	"millrace/stream/coded"
)

// SetRequest reads a value that a request brings: it is refused where a request
// may not set the setting, or asks for more than both the description allows and
// the setting is already.
func (f Field) SetRequest(v any) error {
	before, _ := f.get()
	old := 0.0
	if before.IsValid() {
		old = number(before)
		before = reflect.ValueOf(before.Interface()) // a copy
	}
	switch {
	case f.Request == "":
		return f.errorf("comes from the server's configuration only")
	case f.Request == "any":
		return f.SetAny(v)
	}
	limit := reflect.New(f.typ).Elem()
	if err := f.parse(limit, []string{f.Request}); err != nil {
		panic(err) // newField has read it
	}
	if err := f.SetAny(v); err != nil {
		return err
	}
	now, _ := f.get()
	if n := number(now); n > old && n > number(limit) {
		err := f.errorf("%s is more than the %s that a request may ask for: only the server's configuration can set it", f.text(now), f.Request)
		f.put(before)
		return err
	}
	return nil
}

// FindRequest returns the setting that a request means by a name: a path or one
// of the short names.
func (t *Table) FindRequest(name string) (Field, bool) {
	for _, f := range t.fields {
		if f.Path == name || slices.Contains(f.Short, name) {
			return f, true
		}
	}
	return Field{}, false
}

// SetObject reads the members of an object by set, which is Field.SetAny or
// Field.SetRequest: a member is a setting, or an object with those of a section. What is no
// setting is refused. There is an error for each member that is wrong.
func (t *Table) SetObject(object map[string]any, set func(Field, any) error) error {
	return errors.Join(t.setObject("", object, set)...)
}

func (t *Table) setObject(at string, object map[string]any, set func(Field, any) error) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		path := join(at, name)
		v := object[name]
		f, known := t.Find(path)
		inner, isObject := v.(map[string]any)
		switch {
		case strings.Contains(name, ".") || !known && !t.IsSection(path):
			errs = append(errs, t.Unknown(path))
		case !known && isObject:
			errs = append(errs, t.setObject(path, inner, set)...)
		case !known:
			errs = append(errs, coded.Errorf(coded.InvalidArgument, path, "is a section: it has %s", strings.Join(t.Below(path), ", ")))
		case v == nil: // as if it was left out
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
		return errors.New("is not one JSON object: there is more behind it")
	}
	return t.SetObject(object, set)
}

// Object returns the settings that are set, as SetObject reads them: for a file
// or a reply in JSON.
func (t *Table) Object() map[string]any {
	out := map[string]any{}
	for _, f := range t.fields {
		v, set := f.get()
		if !set {
			continue
		}
		in := out
		names := strings.Split(f.Path, ".")
		for _, name := range names[:len(names)-1] {
			next, ok := in[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				in[name] = next
			}
			in = next
		}
		in[names[len(names)-1]] = f.plain(v)
	}
	return out
}

// plain is a value as JSON has it.
func (f Field) plain(v reflect.Value) any {
	switch {
	case f.typ == durationType || f.textMethod:
		if f.unit == "ms" {
			return v.Int() / 1e6
		}
		return f.text(v)
	}
	return v.Interface()
}
