package setting

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"millrace/stream/coded"
)

// Names is a setting with any keys and texts as values: a map[string]string.
type Names struct {
	Path  string
	Help  string
	Unset string // the meaning of leaving the setting out

	Advanced bool // as in Field

	at func(create bool) reflect.Value
}

var namesType = reflect.TypeFor[map[string]string]()

// FindNames returns the setting at a path, if the setting is a Names.
func (t *Table) FindNames(path string) (Names, bool) {
	i := slices.IndexFunc(t.names, func(n Names) bool { return n.Path == path })
	if i < 0 {
		return Names{}, false
	}
	return t.names[i], true
}

// Names returns the settings with any keys.
func (t *Table) Names() []Names { return t.names }

// Put sets the value of a key.
func (n Names) Put(key, value string) error {
	if key == "" || value == "" {
		return coded.Errorf(coded.InvalidArgument, n.Path, "has an empty name")
	}
	m := n.at(true)
	if m.IsNil() {
		m.Set(reflect.MakeMap(namesType))
	}
	m.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(value))
	return nil
}

func (n Names) get() map[string]string {
	m := n.at(false)
	if !m.IsValid() {
		return nil
	}
	return m.Interface().(map[string]string)
}

// setObject sets the keys of an object.
func (n Names) setObject(v any) error {
	object, ok := v.(map[string]any)
	if !ok {
		return coded.Errorf(coded.InvalidArgument, n.Path, "is not an object with texts")
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		text, ok := object[key].(string)
		if !ok {
			return coded.Errorf(coded.InvalidArgument, n.Path+"."+key, "%v is not a string", object[key])
		}
		if err := n.Put(key, text); err != nil {
			return err
		}
	}
	return nil
}

// SetParam sets a setting from a parameter: a plain value, or the JSON text of a list.
func (t *Table) SetParam(path string, v any) error {
	f, known := t.Find(path)
	_, isList := t.FindList(path)
	switch {
	case !isList && !(known && f.IsList()):
		if !known {
			return t.Unknown(path)
		}
		return f.SetAny(v)
	case v == nil:
		return nil
	}
	text, ok := v.(string)
	if !ok {
		return coded.Errorf(coded.InvalidArgument, path, "is not the JSON text of a list")
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	var list []any
	if err := d.Decode(&list); err != nil || d.More() {
		return coded.Errorf(coded.InvalidArgument, path, "is not the JSON text of a list")
	}
	return t.SetObject(map[string]any{path: list}, Field.SetAny)
}

// Param returns the value of a list in the form for SetParam.
func (l List) Param() string {
	text, err := json.Marshal(l.objects())
	if err != nil {
		panic(err) // objects are plain values
	}
	return string(text)
}
