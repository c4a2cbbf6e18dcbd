package setting

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"millrace/stream/coded"
)

// parse reads values in the notation of a file, without checking bounds.
func (f Field) parse(v reflect.Value, values []string) error {
	switch v.Kind() {
	case reflect.Slice:
		switch f.typ.Elem().Kind() {
		case reflect.Float64:
			return f.parseNumbers(v, values)
		case reflect.Slice:
			return f.parsePoints(v, values)
		}
		v.Set(reflect.ValueOf(append([]string(nil), values...)).Convert(f.typ))
		return nil
	case reflect.Array:
		return f.parseArray(v, values)
	}
	if len(values) != 1 {
		return f.errorf("is a list: want one value")
	}
	text := values[0]
	switch {
	case f.textMethod:
		if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
			return f.errorf("%v", err)
		}
		return nil
	case text == "" && v.Kind() != reflect.String && !f.change:
		return f.errorf("is empty: leave it out for its default")
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return f.errorf("%.140q is not true or false", text)
		}
		v.SetBool(text == "true")
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return f.errorf("%.140q is not a number", text)
		}
		v.SetFloat(n)
	default:
		n, err := f.parseInt(text)
		if err != nil {
			return f.errorf("%v", err)
		}
		v.SetInt(n)
	}
	return nil
}

// parseInt reads a whole number, a size or a duration.
func (f Field) parseInt(text string) (int64, error) {
	switch {
	case f.unit == "bytes":
		return ParseSize(text)
	case f.typ == durationType && f.unit == "ms":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n > math.MaxInt64/int64(time.Millisecond) {
			return 0, fmt.Errorf("%.140q is not a whole number", text)
		}
		if n < 0 {
			return 0, fmt.Errorf("%d is negative", n)
		}
		return n * int64(time.Millisecond), nil
	case f.typ == durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%.140q is not a duration such as 5ms or 10s", text)
		}
		if d < 0 {
			return 0, fmt.Errorf("%v is negative", d)
		}
		return int64(d), nil
	}
	n, err := strconv.ParseInt(text, 10, f.typ.Bits())
	if err != nil {
		return 0, fmt.Errorf("%.140q is not a whole number", text)
	}
	return n, nil
}

// parseArray reads one number for all elements, or one for each.
func (f Field) parseArray(v reflect.Value, values []string) error {
	if len(values) != 1 && len(values) != v.Len() {
		return f.errorf("has %d numbers: want one for all, or %d", len(values), v.Len())
	}
	for i := range v.Len() {
		text := values[min(i, len(values)-1)]
		n, err := strconv.ParseFloat(text, 32)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return f.errorf("%.140q is not a number", text)
		}
		v.Index(i).SetFloat(n)
	}
	return nil
}

// parseNumbers reads a list of numbers.
func (f Field) parseNumbers(v reflect.Value, values []string) error {
	var out []float64
	for _, text := range values {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return f.errorf("%.140q is not a number", text)
		}
		out = append(out, n)
	}
	v.Set(reflect.ValueOf(out).Convert(v.Type()))
	return nil
}

// parsePoints reads a list of points: each value has the numbers of a point, separated by commas.
func (f Field) parsePoints(v reflect.Value, values []string) error {
	out := reflect.MakeSlice(f.typ, len(values), len(values))
	for i, text := range values {
		if err := f.parseNumbers(out.Index(i), strings.Split(text, ",")); err != nil {
			return coded.RenameFunc(err, func(field string) string { return fmt.Sprintf("%s[%d]", field, i) })
		}
	}
	v.Set(out)
	return nil
}

// text writes a value in the notation of parse.
func (f Field) text(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case encoding.TextMarshaler:
		b, err := x.MarshalText()
		if err != nil {
			return err.Error()
		}
		return string(b)
	case time.Duration:
		if f.unit == "ms" {
			return strconv.FormatInt(x.Milliseconds(), 10)
		}
		return FormatDuration(x)
	case []string:
		return strings.Join(x, ",")
	case []float64:
		texts := make([]string, len(x))
		for i, n := range x {
			texts[i] = strconv.FormatFloat(n, 'g', -1, 64)
		}
		return strings.Join(texts, ",")
	case [][]float64:
		text, err := json.Marshal(x)
		if err != nil {
			panic(err) // the numbers are finite
		}
		return string(text)
	}
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		if f.unit == "bytes" {
			return FormatSize(v.Int())
		}
	case reflect.Array:
		texts := make([]string, v.Len())
		for i := range texts {
			texts[i] = fmt.Sprint(v.Index(i).Interface())
		}
		return "[" + strings.Join(texts, ",") + "]"
	}
	return fmt.Sprint(v.Interface())
}

// SetAny sets a value of a request: a string, a bool, a number (int64, float64, json.Number)
// or a list of these. Unlike in a file, a number is not accepted for a string.
func (f Field) SetAny(v any) error {
	read, err := f.readAny(v)
	if err == nil {
		f.put(read)
	}
	return err
}

func (f Field) readAny(v any) (none reflect.Value, err error) {
	if list, ok := v.([]any); ok {
		if f.typ.Kind() != reflect.Slice && f.typ.Kind() != reflect.Array {
			return none, f.errorf("is a list: want one value")
		}
		texts := make([]string, len(list))
		for i, v := range list {
			if texts[i], ok = f.element(v); !ok {
				return none, f.errorf("has %v, which is not %s", v, f.elements())
			}
		}
		return f.readText(texts)
	}
	text, ok := plain(v)
	_, isString := v.(string)
	_, isBool := v.(bool)
	isNumber := ok && !isString && !isBool
	switch kind := f.typ.Kind(); {
	case !ok:
		return none, f.errorf("%v is not a plain value", v)
	case isString && !f.textMethod && (kind == reflect.Float64 || kind == reflect.Int || kind == reflect.Int64) &&
		f.unit != "bytes" && (f.typ != durationType || f.unit == "ms"):
		return none, f.errorf("%.140q is not %s", text,
			map[bool]string{true: "a number", false: "a whole number"}[kind == reflect.Float64])
	case !isString && kind == reflect.String:
		return none, f.errorf("%v is not a string", v)
	case isNumber && f.typ == durationType && f.unit == "":
		return none, f.errorf("%v is not a duration such as \"5ms\"", v)
	}
	return f.readText([]string{text})
}

// IsPoints reports whether the setting is a list of points.
func (f Field) IsPoints() bool { return f.IsList() && f.typ.Elem().Kind() == reflect.Slice }

// elements describes the elements of a list.
func (f Field) elements() string {
	if f.IsPoints() {
		return "a list of numbers"
	}
	return "a plain value"
}

// element writes an element of a list as text: a plain value, or the numbers of a point.
func (f Field) element(v any) (string, bool) {
	if !f.IsPoints() {
		return plain(v)
	}
	list, ok := v.([]any)
	texts := make([]string, len(list))
	for i, v := range list {
		if _, isString := v.(string); isString {
			return "", false
		}
		if texts[i], ok = plain(v); !ok {
			return "", false
		}
	}
	return strings.Join(texts, ","), ok
}

// plain writes a plain value as text.
func plain(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case int:
		return strconv.Itoa(v), true
	case uint64:
		return strconv.FormatUint(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

var sizeUnits = []struct {
	name string
	size float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// ParseSize reads a number of bytes, written as "1GiB", "512MiB", "1.5GB" or "1024"; letters
// may be in lower case.
func ParseSize(s string) (int64, error) {
	number, unit := strings.TrimSpace(s), 1.0
	for _, u := range sizeUnits {
		if len(number) > len(u.name) && strings.EqualFold(number[len(number)-len(u.name):], u.name) {
			number, unit = strings.TrimSpace(number[:len(number)-len(u.name)]), u.size
			break
		}
	}
	bad := fmt.Errorf("%.140q is not a size such as 8MiB or 1GiB", s)
	if strings.Trim(number, "0123456789.") != "" {
		return 0, bad
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil && unit == 1 {
		return n, nil
	}
	f, err := strconv.ParseFloat(number, 64)
	if f *= unit; err != nil || f != math.Trunc(f) || f >= math.MaxInt64 {
		return 0, bad
	}
	return int64(f), nil
}

// FormatSize writes a number of bytes in the notation of ParseSize.
func FormatSize(n int64) string {
	for i := 3; i >= 0; i-- {
		if u := int64(sizeUnits[i].size); n >= u && n%u == 0 {
			return strconv.FormatInt(n/u, 10) + sizeUnits[i].name
		}
	}
	return strconv.FormatInt(n, 10)
}

// FormatDuration writes a duration in the notation of time.ParseDuration, without zero units.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
