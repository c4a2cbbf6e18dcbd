package setting

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"millrace/stream/coded"
)

// List is a setting with any number of entries, each with its own settings: a slice of structs.
type List struct {
	Path string
	Help string

	typ  reflect.Type // of an entry
	says inherited
	at   func(create bool) reflect.Value // returns the slice
}

// isList reports whether a field is a list of structs.
func isList(sf reflect.StructField) bool {
	return sf.Type.Kind() == reflect.Slice && sf.Type.Elem().Kind() == reflect.Struct
}

// Advanced reports whether the list and the settings of its entries are shown only in a list of all settings.
func (l List) Advanced() bool { return l.says.advanced }

// Lists returns the lists of entries.
func (t *Table) Lists() []List { return t.lists }

// FindList returns the list of a path.
func (t *Table) FindList(path string) (List, bool) {
	i := slices.IndexFunc(t.lists, func(l List) bool { return l.Path == path })
	if i < 0 {
		return List{}, false
	}
	return t.lists[i], true
}

// Len returns the number of entries.
func (l List) Len() int {
	if v := l.at(false); v.IsValid() {
		return v.Len()
	}
	return 0
}

// Entry returns the settings of an entry. Their paths are within the entry.
func (l List) Entry(i int) *Table {
	return l.table(func(create bool) reflect.Value { return l.at(create).Index(i) })
}

// Add adds an entry and returns its settings.
func (l List) Add() *Table {
	v := l.at(true)
	n := v.Len()
	v.Set(reflect.Append(v.Slice3(0, n, n), reflect.Zero(l.typ))) // another list may share the memory
	return l.Entry(n)
}

// Describe returns the settings of an entry without a list.
func (l List) Describe() *Table {
	v := reflect.New(l.typ).Elem()
	return l.table(func(bool) reflect.Value { return v })
}

func (l List) table(get func(bool) reflect.Value) *Table {
	t := &Table{sections: map[string]func(){}}
	t.add("", l.typ, l.says, get)
	return t
}

// EntryPath returns the path of an entry.
func (l List) EntryPath(i int) string { return fmt.Sprintf("%s[%d]", l.Path, i) }

// setEntries replaces the entries by the entries of a request.
func (l List) setEntries(v any, set func(Field, any) error) (errs []error) {
	entries, ok := v.([]any)
	if !ok {
		return []error{coded.Errorf(coded.InvalidArgument, l.Path, "is not a list of objects")}
	}
	to := l.at(true)
	to.SetZero()
	if len(entries) > 0 { // at once: Add copies the entries before
		to.Set(reflect.MakeSlice(to.Type(), len(entries), len(entries)))
	}
	for i, v := range entries {
		object, ok := v.(map[string]any)
		if !ok {
			errs = append(errs, coded.Errorf(coded.InvalidArgument, l.EntryPath(i), "is not an object with %s",
				strings.Join(l.Describe().Below(""), ", ")))
			continue
		}
		for _, err := range l.Entry(i).setObject("", object, set) {
			errs = append(errs, coded.PrefixField(l.EntryPath(i), err))
		}
	}
	return errs
}

// objects returns the entries in the form of SetObject.
func (l List) objects() []any {
	out := make([]any, l.Len())
	for i := range out {
		out[i] = l.Entry(i).Object()
	}
	return out
}
