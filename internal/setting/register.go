package setting

import (
	"fmt"
	"maps"
	"reflect"
	"sync"
)

// The scopes of registered settings.
const (
	Server = "server"
	Model  = "model" // an entry of models
)

// section has the settings of a registered part.
type section struct {
	at  string
	typ reflect.Type
}

var registry = struct {
	sync.Mutex
	sections map[string][]section
}{sections: map[string][]section{}}

// Register adds the settings of a part, such as a stage or an adapter, to the settings of the server or of each
// model. T is the struct of the settings. at is the path of their section, possibly shared with other settings; "" =
// none. Register panics if tags are invalid or two parts have the same key. Call Register from init.
func Register[T any](scope, at string) {
	typ := reflect.TypeFor[T]()
	all := TableOf(at, new(T))
	registry.Lock()
	defer registry.Unlock()
	for _, s := range registry.sections[scope] {
		if s.typ == typ {
			panic(fmt.Sprintf("setting: %v is registered twice for %s", typ, scope))
		}
		all.Add(s.at, reflect.New(s.typ).Interface())
	}
	registry.sections[scope] = append(registry.sections[scope], section{at, typ})
}

// AddParts adds the registered settings of a scope. parts has the settings that were set: pointers to structs, at
// most one of each type.
func (t *Table) AddParts(scope string, parts *[]any) {
	registry.Lock()
	defer registry.Unlock()
	for _, s := range registry.sections[scope] {
		get := func(create bool) reflect.Value {
			for _, p := range *parts {
				if v := reflect.ValueOf(p); v.Type().Elem() == s.typ {
					return v.Elem()
				}
			}
			if !create {
				return reflect.Value{}
			}
			v := reflect.New(s.typ)
			*parts = append((*parts)[:len(*parts):len(*parts)], v.Interface())
			return v.Elem()
		}
		t.add(s.at, s.typ, inherited{}, get)
	}
}

// Part returns the settings of a part, with defaults, and whether any setting was set.
func Part[T any](parts []any) (settings T, set bool) {
	for _, p := range parts {
		if v, ok := p.(*T); ok {
			settings, set = *v, true
		}
	}
	Fill(&settings)
	return settings, set
}

// DetachCopies replaces the structs in optional sections and registered parts of the struct by copies. Later changes
// then do not affect the original of the struct.
func DetachCopies(ptr any) { detachCopy(reflect.ValueOf(ptr).Elem()) }

func detachCopy(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case !f.CanSet():
		case f.Kind() == reflect.Struct:
			detachCopy(f)
		case f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct && !f.IsNil():
			f.Set(copyOf(f))
		case isList(v.Type().Field(i)) && f.Len() > 0:
			entries := reflect.MakeSlice(f.Type(), f.Len(), f.Len())
			reflect.Copy(entries, f)
			for i := range entries.Len() {
				detachCopy(entries.Index(i))
			}
			f.Set(entries)
		case f.Type() == namesType && !f.IsNil():
			f.Set(reflect.ValueOf(maps.Clone(f.Interface().(map[string]string))))
		case f.Type() == reflect.TypeFor[[]any]():
			parts := make([]any, f.Len())
			for i := range parts {
				parts[i] = copyOf(f.Index(i).Elem()).Interface()
			}
			if len(parts) > 0 {
				f.Set(reflect.ValueOf(parts))
			}
		}
	}
}

// copyOf copies the struct pointed to by p.
func copyOf(p reflect.Value) reflect.Value {
	c := reflect.New(p.Type().Elem())
	c.Elem().Set(p.Elem())
	detachCopy(c.Elem())
	return c
}
