package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Messages are plain structs. encoding/json writes messages, and this file reads messages by the same tags, but more
// strictly than encoding/json: the names of members are case-sensitive, and a member that is repeated, null or out of
// bounds is an error. The tag `want` has "must" for a required field, and the name of one of the bounds below.

// bounds are the allowed values of a field.
type bounds struct {
	max                  uint64 // of an unsigned integer
	minFloat, maxFloat   float64
	minLength, maxLength int      // bytes of a string
	oneOf                []string // strings
	open                 byte     // the first character of a value kept as text
}

var namedBounds = map[string]bounds{
	"ms":       {max: MaxMS},
	"side":     {max: MaxSide},
	"window":   {max: MaxWindow},
	"percent":  {max: 100},
	"rate":     {minFloat: 0.001, maxFloat: 1e6}, // or 0
	"name":     {maxLength: MaxName},
	"word":     {minLength: 1, maxLength: MaxName},
	"token":    {minLength: 1, maxLength: MaxToken},
	"no token": {maxLength: MaxToken}, // or a token
	"mode":     {oneOf: []string{"latest", "every"}},
	"outputs":  {oneOf: []string{"json", "binary", "none"}},
	"codec":    {oneOf: append([]string{"auto"}, codecNames[:]...)},
	"array":    {open: '['},
	"object":   {open: '{'},
}

// setter reads a value into a field.
type setter func(v value, to reflect.Value) error

// structReader reads an object into a struct of one type.
type structReader struct {
	fields   []fieldReader
	checks   bool // the struct is a checker
	complete bool // unknown members are errors
}

type fieldReader struct {
	name string
	must bool
	set  setter
}

// checker is a struct with a rule about several fields.
type checker interface{ check() error }

// valueReader is a type with its own reader.
type valueReader interface{ read(value) error }

func readerOf(t reflect.Type) *structReader {
	r := &structReader{checks: reflect.PointerTo(t).Implements(reflect.TypeFor[checker]())}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		field := fieldReader{name: name}
		var b bounds
		for want := range strings.SplitSeq(f.Tag.Get("want"), ",") {
			switch named, ok := namedBounds[want]; {
			case ok:
				b = named
			case want == "must":
				field.must = true
			case want != "":
				panic(fmt.Sprintf("wire: %s.%s: the tag `want` has %q", t, f.Name, want))
			}
		}
		field.set = setterOf(f.Type, b)
		r.fields = append(r.fields, field)
	}
	return r
}

// read reads the members of the object v. Unknown members are ignored, unless the reader is complete. The error has
// the field.
func (r *structReader) read(v value, to reflect.Value) error {
	var seen uint64 // a bit for each field
	err := v.members(func(key []byte, member value) error {
		for i := range r.fields {
			f := &r.fields[i]
			if f.name != string(key) {
				continue
			}
			if seen&(1<<i) != 0 {
				return invalid(ErrTwice, f.name, "is given twice")
			}
			seen |= 1 << i
			return prefixField(f.name, f.set(member, to.Field(i)))
		}
		if r.complete {
			return invalid(ErrUnknown, clip(string(key)), "is no member of this message")
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range r.fields {
		if f := &r.fields[i]; f.must && seen&(1<<i) == 0 {
			return invalid(ErrMissing, f.name, "is missing")
		}
	}
	if r.checks {
		return to.Addr().Interface().(checker).check()
	}
	return nil
}

func setterOf(t reflect.Type, b bounds) setter {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[valueReader]()) {
		return func(v value, to reflect.Value) error { return to.Addr().Interface().(valueReader).read(v) }
	}
	if t == reflect.TypeFor[json.RawMessage]() {
		return b.setRaw
	}
	switch t.Kind() {
	case reflect.Struct:
		return readerOf(t).read
	case reflect.Pointer:
		set := setterOf(t.Elem(), b)
		return func(v value, to reflect.Value) error {
			to.Set(reflect.New(t.Elem()))
			return set(v, to.Elem())
		}
	case reflect.Slice:
		return setSlice(t, setterOf(t.Elem(), b))
	case reflect.Array:
		return setArray(t, setterOf(t.Elem(), b))
	case reflect.Bool:
		return setBool
	case reflect.Int:
		return b.setUnsigned(math.MaxInt)
	case reflect.Uint32:
		return b.setUnsigned(math.MaxUint32)
	case reflect.Uint64:
		return b.setUnsigned(math.MaxUint64)
	case reflect.Int64:
		return setSigned
	case reflect.Float64:
		return b.setFloat
	case reflect.String:
		return b.setString
	}
	panic("wire: a message has a field of type " + t.String())
}

func setSlice(t reflect.Type, set setter) setter {
	return func(v value, to reflect.Value) error {
		return v.items(func(_ int, v value) error {
			item := reflect.New(t.Elem()).Elem()
			err := set(v, item)
			to.Set(reflect.Append(to, item))
			return err
		})
	}
}

func setArray(t reflect.Type, set setter) setter {
	return func(v value, to reflect.Value) error {
		n := 0
		err := v.items(func(i int, v value) error {
			if n++; i >= t.Len() {
				return nil
			}
			return set(v, to.Index(i))
		})
		if err == nil && n != t.Len() {
			return v.wrong(fmt.Sprintf("an array of %d", t.Len()))
		}
		return err
	}
}

func setBool(v value, to reflect.Value) error {
	if v[0] != 't' && v[0] != 'f' {
		return v.wrong("true or false")
	}
	to.SetBool(v[0] == 't')
	return nil
}

func setSigned(v value, to reflect.Value) error {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return v.wrong("a whole number of 64 bits")
	}
	to.SetInt(n)
	return nil
}

// setUnsigned reads an integer from 0 to the bound, or to most without a bound.
func (b bounds) setUnsigned(most uint64) setter {
	if b.max != 0 {
		most = b.max
	}
	return func(v value, to reflect.Value) error {
		n, err := strconv.ParseUint(string(v), 10, 64)
		switch {
		case err != nil || n > most:
			return v.wrong("a whole number from 0 to " + strconv.FormatUint(most, 10))
		case to.CanInt():
			to.SetInt(int64(n))
		default:
			to.SetUint(n)
		}
		return nil
	}
}

// setFloat reads 0 or a number within the bounds; without bounds, any positive number.
func (b bounds) setFloat(v value, to reflect.Value) error {
	least, greatest := b.minFloat, b.maxFloat
	if greatest == 0 {
		greatest = math.MaxFloat64
	}
	f, err := v.float()
	if err != nil || f != 0 && !(f >= least && f <= greatest) {
		return v.wrong(fmt.Sprintf("0 or a number from %v to %v", least, greatest))
	}
	to.SetFloat(f)
	return nil
}

func (b bounds) setString(v value, to reflect.Value) error {
	if b.oneOf != nil {
		if v[0] == '"' {
			if i := slices.Index(b.oneOf, string(v.unquote())); i >= 0 {
				to.SetString(b.oneOf[i])
				return nil
			}
		}
		return v.wrong("one of " + strings.Join(b.oneOf, ", "))
	}
	if v[0] != '"' {
		return v.wrong("a string")
	}
	s := v.unquote()
	if len(s) < b.minLength || b.maxLength > 0 && len(s) > b.maxLength {
		return v.wrong(fmt.Sprintf("a string of %d to %d bytes", b.minLength, b.maxLength))
	}
	to.SetString(string(s))
	return nil
}

// setRaw keeps the text of a value, as a view into the message.
func (b bounds) setRaw(v value, to reflect.Value) error {
	if v[0] != b.open {
		return v.wrong(map[byte]string{'[': "an array", '{': "an object"}[b.open])
	}
	to.SetBytes(v)
	return nil
}
