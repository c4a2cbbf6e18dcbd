package postprocess

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// exported is the description of the form in the metadata of a model's file. The packages ultralytics and yolov5
// write metadata as literals of Python.
type exported struct {
	task    string // "" = unknown
	end2end *bool
	names   []string // of the classes
	points  int      // of kpt_shape; 0 = unknown
	dims    int
}

// readExported reads the metadata of a file. Unreadable values count as unknown.
func readExported(metadata map[string]string) (e exported) {
	e.task = metadata["task"]
	e.names = readNames(metadata["names"])
	if list, ok := literal(metadata["kpt_shape"]).([]any); ok && len(list) == 2 {
		points, ok1 := list[0].(float64)
		dims, ok2 := list[1].(float64)
		if ok1 && ok2 && points >= 1 && points <= 10000 && (dims == 2 || dims == 3) {
			e.points, e.dims = int(points), int(dims)
		}
	}
	final, ok := literal(metadata["end2end"]).(bool)
	args, _ := literal(metadata["args"]).(map[any]any)
	if nms, _ := args["nms"].(bool); nms {
		final, ok = true, true
	}
	if ok {
		e.end2end = &final
	}
	return e
}

// readNames reads {0: 'person', 1: 'car'} or ['person', 'car'].
func readNames(text string) []string {
	switch v := literal(text).(type) {
	case []any:
		names := make([]string, len(v))
		for i, n := range v {
			s, ok := n.(string)
			if !ok {
				return nil
			}
			names[i] = s
		}
		return names
	case map[any]any:
		names := make([]string, len(v))
		for i := range names {
			s, ok := v[float64(i)].(string)
			if !ok {
				if s, ok = v[strconv.Itoa(i)].(string); !ok { // as in JSON
					return nil
				}
			}
			names[i] = s
		}
		return names
	}
	return nil
}

// parseTask reads the setting task.
func parseTask(text string) (f struct {
	task    string
	end2end bool
}, ok bool) {
	f.task, f.end2end = strings.CutPrefix(text, "end2end")
	if f.task = strings.TrimPrefix(f.task, "-"); f.task == "" {
		f.task = "detect"
	}
	return f, true
}

// parseKptShape reads 17x3.
func parseKptShape(text string) (points, dims int, err error) {
	a, b, ok := strings.Cut(text, "x")
	points, err = strconv.Atoi(strings.TrimSpace(a))
	if err == nil {
		dims, err = strconv.Atoi(strings.TrimSpace(b))
	}
	if !ok || err != nil || points < 1 || points > 10000 || dims < 2 || dims > 3 {
		return 0, 0, fmt.Errorf("is %q: want POINTSx2 or POINTSx3, such as 17x3", text)
	}
	return points, dims, nil
}

// literal reads a literal of Python, or JSON: nil, bool, float64, string, []any or map[any]any; nil for any other
// text.
func literal(text string) any {
	r := literalReader{text: text}
	v, ok := r.value(0)
	if r.space(); !ok || r.text != "" {
		return nil
	}
	return v
}

type literalReader struct{ text string }

// maxLiteralDepth bounds the lists in lists.
const maxLiteralDepth = 8

func (r *literalReader) space() { r.text = strings.TrimLeft(r.text, " \t\r\n") }

// take removes prefix, after spaces.
func (r *literalReader) take(prefix string) (ok bool) {
	r.space()
	r.text, ok = strings.CutPrefix(r.text, prefix)
	return ok
}

func (r *literalReader) value(depth int) (any, bool) {
	for _, w := range []struct {
		word string
		v    any
	}{{"True", true}, {"False", false}, {"None", nil}, {"true", true}, {"false", false}, {"null", nil}} {
		if r.take(w.word) {
			return w.v, true
		}
	}
	switch {
	case r.text == "" || depth > maxLiteralDepth:
		return nil, false
	case r.take("["):
		return r.list("]", depth)
	case r.take("("):
		return r.list(")", depth)
	case r.take("{"):
		return r.dict(depth)
	case r.text[0] == '\'' || r.text[0] == '"':
		return r.quoted()
	}
	end := strings.IndexFunc(r.text, func(c rune) bool { return !strings.ContainsRune("+-.0123456789eE", c) })
	if end < 0 {
		end = len(r.text)
	}
	v, err := strconv.ParseFloat(r.text[:end], 64)
	r.text = r.text[end:]
	return v, err == nil
}

func (r *literalReader) list(end string, depth int) (any, bool) {
	list := []any{}
	for !r.take(end) {
		v, ok := r.value(depth + 1)
		if !ok {
			return nil, false
		}
		if list = append(list, v); !r.take(",") {
			return list, r.take(end)
		}
	}
	return list, true
}

func (r *literalReader) dict(depth int) (any, bool) {
	m := map[any]any{}
	for !r.take("}") {
		key, ok := r.value(depth + 1)
		switch key.(type) {
		case []any, map[any]any: // not comparable
			return nil, false
		}
		if !ok || !r.take(":") {
			return nil, false
		}
		if m[key], ok = r.value(depth + 1); !ok {
			return nil, false
		}
		if !r.take(",") {
			return m, r.take("}")
		}
	}
	return m, true
}

// quoted reads a string in single or double quotes.
func (r *literalReader) quoted() (any, bool) {
	quote, rest := r.text[0], r.text[1:]
	var b strings.Builder
	for rest != "" {
		c := rest[0]
		switch {
		case c == quote:
			r.text = rest[1:]
			return b.String(), utf8.ValidString(b.String())
		case c == '\\' && len(rest) > 1 && (rest[1] == '\'' || rest[1] == '"'):
			b.WriteByte(rest[1])
			rest = rest[2:]
		case c == '\\':
			v, _, tail, err := strconv.UnquoteChar(rest, quote)
			if err != nil {
				return nil, false
			}
			b.WriteRune(v)
			rest = tail
		default:
			b.WriteByte(c)
			rest = rest[1:]
		}
	}
	return nil, false
}
