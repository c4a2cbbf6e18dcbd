package setting

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/stream/coded"
)

// Field is a setting, bound to its struct field.
type Field struct {
	Path     string // "limits.max_body"
	Help     string
	Example  string   // an allowed value, if bounds and words do not give one
	Default  string   // in the notation of a file; "" = none
	Unset    string   // the meaning of leaving the setting out, without a default
	Words    []string // the allowed values, if listed
	Short    []string // other names allowed in requests
	Request  string   // "" = not allowed in requests, "any" = allowed, otherwise the largest value in requests
	File     bool     // a path relative to the configuration's folder
	Advanced bool     // shown only in a list of all settings
	Secret   bool     // its environment variable is removed after reading; a model's secret is not in the metadata

	owner      reflect.Type // the struct with the field
	form       string
	unit       string
	min, max   bound
	zero       bool // 0 is a value and does not mean the default
	typ        reflect.Type
	at         func(create bool) reflect.Value // returns the zero Value if a section is missing and must not be created
	isPointer  bool
	textMethod bool
	change     bool // see ForChange
}

// bound is a limit of a number.
type bound struct {
	text string // in the notation of a file; "" = none
	at   float64
	open bool // the limit itself is excluded
}

// ForChange returns the field for a change of its value: in a change, leaving the setting out does not mean the
// default, and errors do not suggest leaving it out.
func (f Field) ForChange() Field {
	f.change = true
	return f
}

// noZero is the advice in the error about a value that stands for the default.
func (f Field) noZero() string {
	switch {
	case !f.change:
		return "leave it out for its default"
	case f.min.text == "":
		return "want more than 0, " + f.Range()
	}
	return "want " + f.Range()
}

func (f Field) errorf(format string, args ...any) error {
	return coded.Errorf(coded.InvalidArgument, f.Path, format, args...)
}

// IsBool reports whether the setting is true or false.
func (f Field) IsBool() bool { return f.typ.Kind() == reflect.Bool }

// IsList reports whether the setting has any number of values.
func (f Field) IsList() bool { return f.typ.Kind() == reflect.Slice }

var (
	durationType = reflect.TypeFor[time.Duration]()
	pointsType   = reflect.TypeFor[[][]float64]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// fieldKey has what the Field of a struct field depends on, except the struct that the Field is bound to.
type fieldKey struct {
	path  string
	owner reflect.Type
	index int
	says  inherited
}

// knownFields has each Field without a struct, by fieldKey: the tags of a type are parsed once. A program starts, and
// reads a configuration, by many tables of the same types.
var knownFields sync.Map

// boundField returns the setting of the field of a struct with an index.
func boundField(path string, owner reflect.Type, index int, says inherited, at func(bool) reflect.Value) Field {
	key := fieldKey{path, owner, index, says}
	known, ok := knownFields.Load(key)
	if !ok {
		f := newField(path, owner.Field(index), says)
		f.owner = owner
		known, _ = knownFields.LoadOrStore(key, f)
	}
	f := known.(Field)
	f.at = at
	f.readWords()
	return f
}

// readWords asks the type for its words, which packages may add to as the program starts.
func (f *Field) readWords() {
	if w, ok := reflect.Zero(f.typ).Interface().(interface{ Words() []string }); ok {
		f.Words = w.Words()
	}
}

// newField reads the tags. Invalid tags, a mistake of the program found by any test of the struct, cause a panic.
func newField(path string, sf reflect.StructField, says inherited) Field {
	tag := sf.Tag
	f := Field{
		Path: path, Help: tag.Get("help"), Example: tag.Get("example"), Default: tag.Get("default"), Unset: says.unset,
		Request: says.request,
		Words:   strings.Fields(tag.Get("words")), Short: strings.Fields(tag.Get("short")),
		File: tag.Get("path") == "file", Secret: tag.Get("secret") == "yes", Advanced: says.advanced,
		unit: tag.Get("unit"), form: tag.Get("form"), typ: sf.Type,
	}
	if f.Default != "" {
		f.Unset = ""
	}
	if f.typ.Kind() == reflect.Pointer {
		f.typ, f.isPointer = f.typ.Elem(), true
	}
	f.textMethod = reflect.PointerTo(f.typ).Implements(textType)
	f.readWords()
	if !f.settable() {
		panic(fmt.Sprintf("setting: %s: no setting is read into a %v", path, sf.Type))
	}
	for name, b := range map[string]*bound{"min": &f.min, "max": &f.max, "above": &f.min, "below": &f.max} {
		text, ok := tag.Lookup(name)
		if !ok {
			continue
		}
		v := reflect.New(f.typ).Elem()
		if err := f.parse(v, []string{text}); err != nil {
			panic(fmt.Sprintf("setting: %s of %v", name, err))
		}
		*b = bound{text: text, at: number(v), open: name == "above" || name == "below"}
	}
	if f.Request != "" && f.Request != "any" {
		if err := f.parse(reflect.New(f.typ).Elem(), []string{f.Request}); err != nil {
			panic(fmt.Sprintf("setting: request of %v", err))
		}
	}
	f.zero = f.isPointer || f.textMethod || f.min.text != "" && f.min.at <= 0 && !f.min.open
	for name, text := range map[string]string{"default": f.Default, "example": f.Example} {
		if text == "" {
			continue
		}
		v := reflect.New(f.typ).Elem()
		err := f.parse(v, f.exampleValues(text))
		if err == nil {
			err = f.check(v)
		}
		if err != nil {
			panic(fmt.Sprintf("setting: %s of %v", name, err))
		}
	}
	if f.Default == "true" && f.typ.Kind() == reflect.Bool && !f.isPointer {
		panic(fmt.Sprintf("setting: %s may be false and has another default: make it a pointer", path))
	}
	if f.zero && !f.isPointer && !f.textMethod && f.Default != "" {
		panic(fmt.Sprintf("setting: %s may be 0 and has another default: make it a pointer", path))
	}
	return f
}

// exampleValues splits the numbers or points of an example: "1, 2" or "[[1, 2], [3, 4]]".
func (f Field) exampleValues(text string) []string {
	switch {
	case f.IsPoints():
		return strings.Split(strings.Trim(strings.ReplaceAll(text, " ", ""), "[]"), "],[")
	case f.IsList() && f.typ.Elem().Kind() == reflect.Float64:
		return strings.Split(strings.ReplaceAll(text, " ", ""), ",")
	}
	return []string{text}
}

func (f Field) settable() bool {
	switch f.typ.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return true
	case reflect.Slice:
		kind := f.typ.Elem().Kind()
		return (kind == reflect.String || kind == reflect.Float64 || f.typ == pointsType) && !f.isPointer
	case reflect.Array:
		return f.typ.Elem().Kind() == reflect.Float32 && !f.isPointer
	}
	return f.textMethod
}

// number returns the value of a field as a number, for the comparison with bounds.
func number(v reflect.Value) float64 {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		return float64(v.Int())
	case reflect.Float64:
		return v.Float()
	}
	return 0
}

// Set sets the field to the values, if valid. Only lists and arrays have more than one value. Errors are *coded.Error
// with the path.
func (f Field) Set(values ...string) error {
	v, err := f.readText(values)
	if err == nil {
		f.put(v)
	}
	return err
}

// readText converts the values to the type of the field, and checks them.
func (f Field) readText(values []string) (reflect.Value, error) {
	v := reflect.New(f.typ).Elem()
	if err := f.parse(v, values); err != nil {
		return v, err
	}
	if !f.zero && v.IsZero() && (v.CanInt() || v.CanFloat()) {
		return v, f.errorf("%s is not allowed: %s", values[0], f.noZero())
	}
	return v, f.check(v)
}

// read reads a value of a tag already checked by newField.
func (f Field) read(text string) reflect.Value {
	v := reflect.New(f.typ).Elem()
	if err := f.parse(v, []string{text}); err != nil {
		panic(err)
	}
	return v
}

// Clear unsets the setting: the default applies.
func (f Field) Clear() {
	if f.isSet() {
		to := f.at(true)
		to.SetZero()
	}
}

func (f Field) isSet() bool {
	_, set := f.get()
	return set
}

func (f Field) put(v reflect.Value) {
	to := f.at(true)
	if f.isPointer {
		p := reflect.New(f.typ)
		p.Elem().Set(v)
		v = p
	}
	to.Set(v)
}

// get returns the value of the field, and whether the value was set.
func (f Field) get() (reflect.Value, bool) {
	v := f.at(false)
	if !v.IsValid() {
		return v, false
	}
	if f.isPointer {
		return v.Elem(), !v.IsNil()
	}
	return v, !v.IsZero()
}

// check returns an error for a value out of bounds or not among the words.
func (f Field) check(v reflect.Value) error {
	if len(f.Words) > 0 && !slices.Contains(f.Words, f.text(v)) {
		return f.errorf("%.140q is unknown: want %s", f.text(v), either(f.Words))
	}
	if check := forms[f.form]; check != nil {
		if err := check(v.String()); err != nil {
			return f.errorf("%v", err)
		}
	}
	n := number(v)
	if f.typ == durationType && n < 0 {
		return f.errorf("%s is negative", f.text(v))
	}
	low := f.min.text != "" && !(n > f.min.at || n == f.min.at && !f.min.open)
	high := f.max.text != "" && !(n < f.max.at || n == f.max.at && !f.max.open)
	if !low && !high {
		return nil
	}
	switch text := f.text(v); {
	case f.min.text != "" && f.max.text != "" && !f.min.open && !f.max.open:
		return f.errorf("%s is not between %s and %s", text, f.min.text, f.max.text)
	case low && f.min.open:
		return f.errorf("%s is not more than %s", text, f.min.text)
	case low:
		return f.errorf("%s is less than %s", text, f.min.text)
	case f.max.open:
		return f.errorf("%s is not less than %s", text, f.max.text)
	default:
		return f.errorf("%s is more than %s", text, f.max.text)
	}
}

// Range describes the allowed values in words; "" = any value of the type.
func (f Field) Range() string {
	least, most := f.min.text, f.max.text
	if f.min.open {
		least = "more than " + least
	}
	if f.max.open {
		most = "less than " + most
	}
	switch {
	case len(f.Words) > 0:
		return either(f.Words)
	case least != "" && most != "":
		return least + " to " + most
	case least != "" && f.min.open:
		return least
	case least != "":
		return "at least " + least
	case most != "" && f.max.open:
		return most
	case most != "":
		return "at most " + most
	}
	return ""
}

// either lists words as alternatives.
func either(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// String returns the value of the field in the notation of a file; "" if unset.
func (f Field) String() string {
	v, ok := f.get()
	if !ok {
		return ""
	}
	return f.text(v)
}
