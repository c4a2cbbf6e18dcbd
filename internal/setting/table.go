package setting

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"millrace/stream/coded"
)

// Table has the settings of one or more structs, by path.
type Table struct {
	fields   []Field
	lists    []List
	names    []Names
	sections map[string]func() // creates the section's struct
}

// TableOf returns the settings of the struct pointed to by ptr. at is the path of their section, "" = none. TableOf
// panics if tags are invalid.
func TableOf(at string, ptr any) *Table {
	t := &Table{sections: map[string]func(){}}
	t.Add(at, ptr)
	return t
}

// Add adds the settings of another struct.
func (t *Table) Add(at string, ptr any) {
	v := reflect.ValueOf(ptr).Elem()
	t.add(at, v.Type(), inherited{}, func(bool) reflect.Value { return v })
}

// inherited has the tags of a section for its settings without such a tag.
type inherited struct {
	request, unset, unsetAll string
	advanced                 bool
}

func (i inherited) with(tag reflect.StructTag) inherited {
	all := cmp.Or(i.unsetAll, tag.Get("unset_all"))
	return inherited{cmp.Or(tag.Get("request"), i.request), cmp.Or(all, tag.Get("unset"), i.unset), all, i.advanced ||
		tag.Get("advanced") == "yes"}
}

func (t *Table) add(at string, typ reflect.Type, up inherited, get func(create bool) reflect.Value) {
	for i := range typ.NumField() {
		sf := typ.Field(i)
		name, options, named := nameOf(sf)
		if !sf.IsExported() || name == "-" {
			continue
		}
		field := func(create bool) reflect.Value {
			if v := get(create); v.IsValid() {
				return v.Field(i)
			}
			return reflect.Value{}
		}
		path := join(at, name)
		switch help := sf.Tag.Get("help"); {
		case help != "" && isList(sf):
			t.lists = append(t.lists, List{Path: path, Help: help, typ: sf.Type.Elem(), says: up.with(sf.Tag),
				at: field})
		case help != "" && sf.Type == namesType:
			t.names = append(t.names, Names{Path: path, Help: help, Unset: up.with(sf.Tag).unset,
				Advanced: up.with(sf.Tag).advanced, at: field})
		case help != "" && name == "":
			panic(fmt.Sprintf("setting: field %s of %v has help and no name", sf.Name, typ))
		case help != "":
			if other, twice := t.Find(path); twice {
				panic(fmt.Sprintf("setting: %s is a key of %v and of %v: begin one of them with the name of its kind",
					path, other.owner, typ))
			}
			t.fields = append(t.fields, boundField(path, typ, i, up.with(sf.Tag), field))
		case sf.Type.Kind() == reflect.Struct && (named || sf.Anonymous):
			if sf.Anonymous && !named || options == "inline" {
				path = at
			}
			t.add(path, sf.Type, up.with(sf.Tag), field)
		case named && sf.Type.Kind() == reflect.Pointer && sf.Type.Elem().Kind() == reflect.Struct:
			inner := func(create bool) reflect.Value {
				p := field(create)
				if !p.IsValid() || p.IsNil() && !create {
					return reflect.Value{}
				}
				if p.IsNil() {
					p.Set(reflect.New(sf.Type.Elem()))
				}
				return p.Elem()
			}
			t.sections[path] = func() { inner(true) }
			t.add(path, sf.Type.Elem(), up.with(sf.Tag), inner)
		}
	}
}

func nameOf(sf reflect.StructField) (name, options string, named bool) {
	tag, named := sf.Tag.Lookup("yaml")
	if !named {
		tag, named = sf.Tag.Lookup("json")
	}
	name, options, _ = strings.Cut(tag, ",")
	return name, options, named
}

func join(at, name string) string { return strings.Trim(at+"."+name, ".") }

// Fields returns all settings, in the order of their structs.
func (t *Table) Fields() []Field { return t.fields }

// Find returns the setting of a path.
func (t *Table) Find(path string) (Field, bool) {
	i := slices.IndexFunc(t.fields, func(f Field) bool { return f.Path == path })
	if i < 0 {
		return Field{}, false
	}
	return t.fields[i], true
}

// Choose creates an optional section, so that an empty section counts as given. The result reports whether path is an
// optional section.
func (t *Table) Choose(path string) bool {
	create, ok := t.sections[path]
	if ok {
		create()
	}
	return ok
}

// IsSection reports whether there are settings below path.
func (t *Table) IsSection(path string) bool {
	return len(t.Below(path)) > 0
}

// Below returns the names of the settings and sections in the section at path ("" = the top
// level).
func (t *Table) Below(path string) (names []string) {
	prefix := ""
	if path != "" {
		prefix = path + "."
	}
	for _, f := range t.fields {
		rest, ok := strings.CutPrefix(f.Path, prefix)
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, ".")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, l := range t.lists {
		if name, ok := strings.CutPrefix(l.Path, prefix); ok && !strings.Contains(name, ".") {
			names = append(names, name)
		}
	}
	for _, n := range t.names {
		if name, ok := strings.CutPrefix(n.Path, prefix); ok && !strings.Contains(name, ".") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Set sets the setting at a path, see Field.Set.
func (t *Table) Set(path string, values ...string) error {
	f, ok := t.Find(path)
	if !ok {
		return t.Unknown(path)
	}
	return f.Set(values...)
}

// Unknown returns the error of a path that is not a setting, with the most similar path or the settings of the same
// section. lists are further names allowed beside the settings.
func (t *Table) Unknown(path string, lists ...string) error {
	section, last := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		section, last = path[:i], path[i+1:]
	}
	names := t.Below(section)
	if section == "" && len(lists) > 0 {
		names = append(slices.Clone(names), lists...)
		slices.Sort(names)
	}
	hint := Suggest(last, names)
	if at := t.elsewhere(path); at != "" {
		hint = fmt.Sprintf(" here (did you mean %s?)", at)
	}
	if hint == "" && len(names) > 0 {
		hint = ": there are " + strings.Join(names, ", ")
	}
	return coded.Errorf(coded.InvalidArgument, path, "is not a setting%s", hint)
}

// elsewhere returns the only setting of another section with the name path, such as sinks.webhook for webhook; "" =
// none or several.
func (t *Table) elsewhere(path string) (found string) {
	last := path[strings.LastIndexByte(path, '.')+1:]
	if last != path { // the path has a section: Unknown lists its settings
		return ""
	}
	for _, f := range t.fields {
		if strings.HasSuffix(f.Path, "."+last) {
			if found != "" {
				return ""
			}
			found = f.Path
		}
	}
	return found
}

// Fill sets zero fields to their defaults, except bool fields: false is a value, so a bool whose default is true must
// be a pointer.
func (t *Table) Fill() {
	for _, f := range t.fields {
		if v := f.at(false); f.Default != "" && v.IsValid() && v.IsZero() && v.Kind() != reflect.Bool {
			f.put(f.read(f.Default))
		}
	}
	for _, l := range t.lists {
		for i := range l.Len() {
			l.Entry(i).Fill()
		}
	}
}

// Check returns an error for each field that is out of bounds. Unset fields are not checked.
func (t *Table) Check() (errs []error) {
	for _, f := range t.fields {
		v, set := f.get()
		if !set {
			continue
		}
		if err := f.check(v); err != nil {
			errs = append(errs, err)
		}
	}
	for _, l := range t.lists {
		for i := range l.Len() {
			for _, err := range l.Entry(i).Check() {
				errs = append(errs, coded.PrefixField(l.EntryPath(i), err))
			}
		}
	}
	return errs
}

// Fill sets the zero fields of the struct pointed to by ptr to the defaults.
func Fill(ptr any) { TableOf("", ptr).Fill() }

// Filled returns a pointer to a copy of the struct pointed to by ptr, with the defaults filled in.
func Filled[T any](ptr T) T {
	c := copyOf(reflect.ValueOf(ptr)).Interface()
	Fill(c)
	return c.(T)
}
