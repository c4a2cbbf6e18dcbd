package main

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"millrace/config"
	"millrace/internal/setting"
	"millrace/workers"
)

// fileHead begins the configuration file with all settings.
const fileHead = `# All settings of Millrace, as a configuration file. Written by go generate ./cmd/millrace from the
# code. Do not edit: copy the lines that you change into a file of your own, with the sections
# around them.
#
# A comment has a space after the #. The line of a setting has none: remove the # to set the key.
# The line has the value that applies without the line. A line that ends with "# example" changes
# something: the comment above says what applies without the line.
#
# Sizes are written 512KiB, 8MiB, 1GB, and durations 5ms, 1.5s, 2m. Relative paths are relative to
# the file's folder. A server setting is also a flag and a variable: the flag of log.debug_rate is
# --log-debug-rate, and the variable is MILLRACE_LOG_DEBUG_RATE.
#
# "Requests" says which values a request may set: a request that loads or swaps a model, or that
# adds a stream. Without "Requests", only the file and the command line set the key.
`

const (
	fileColumns = 100           // the width of comments in the file
	exampleMark = "  # example" // ends the lines that change something
)

// filePlace is a place of settings in the file: the top, or an entry of the lists models and streams.
type filePlace struct {
	list     string // "models", "streams" or "" = the top of the file
	required []fileKey
}

// fileKey is a required key of an entry.
type fileKey struct {
	path, value string
	probe       string // the value while the file is written, where value needs files; "" = value
}

// find returns the value of a required key, or "".
func (p filePlace) find(path string) string {
	for _, k := range p.required {
		if k.path == path {
			return k.value
		}
	}
	return ""
}

// parse reads the required keys, and the key at path with a value. path = "" means only the required keys.
func (p filePlace) parse(path, value string) (config.Config, error) {
	in, key, isEntry := strings.Cut(path, "[].")
	var all, entry []string
	for _, k := range p.required {
		of, below, nested := strings.Cut(k.path, "[].")
		text := cmp.Or(k.probe, k.value)
		switch {
		case nested && isEntry && of == in:
			entry = append(entry, below+": "+text)
		case nested:
			all = append(all, of+": [{"+below+": "+text+"}]")
		case isEntry && k.path+"s" == in:
			entry = append(entry, k.path+": "+text) // model: NAME moves into the list models
		default:
			all = append(all, k.path+": "+text)
		}
	}
	switch {
	case isEntry:
		all = append(all, in+": [{"+strings.Join(append(entry, flow(key, value)), ", ")+"}]")
	case path != "":
		all = append(all, flow(path, value))
	}
	text := "{" + strings.Join(all, ", ") + "}"
	if p.list != "" {
		text = p.list + ": [" + text + "]"
	}
	return config.Parse([]byte(text), "")
}

// flow writes a key and its value, with one section for each dot.
func flow(path, value string) string {
	names := strings.Split(path, ".")
	return strings.Join(names, ": {") + ": " + value + strings.Repeat("}", len(names)-1)
}

// value returns the value of a setting in the file. example is true for a value that changes the configuration.
func (p filePlace) value(s config.Setting) (value string, example bool) {
	unset, _ := p.parse("", "")
	var defaults []string
	switch {
	case s.Default != "":
		defaults = []string{quoteYAML(s.Default)}
	case s.List && s.Unset == "":
		defaults = []string{"[]"}
	case s.Unset == "":
		defaults = []string{"false", "0", "0s", `""`}
	}
	for _, value := range defaults {
		if c, err := p.parse(s.Path, value); err == nil && sameConfig(c, unset) {
			return value, false
		}
	}
	switch {
	case s.Example != "" && s.List && s.Example[0] != '[':
		return "[" + quoteYAML(s.Example) + "]", true
	case s.Example != "" && s.List:
		return s.Example, true
	case s.Example != "" || s.Default != "":
		return quoteYAML(cmp.Or(s.Example, s.Default)), true
	}
	candidates := p.candidates(s)
	for _, value := range candidates {
		if c, err := p.parse(s.Path, value); err == nil && !reflect.DeepEqual(c, unset) {
			return value, true
		}
	}
	return candidates[0], true
}

// candidates returns values for a setting that has neither a default nor an example: the default, where words describe
// the default and begin with the value, else one of the setting's words, the key in capitals, or values of other types.
func (p filePlace) candidates(s config.Setting) (out []string) {
	fields := func(text string) []string {
		return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,;", r) })
	}
	isWord := func(text string) bool { return text[0] >= 'a' && text[0] <= 'z' || text[0] >= 'A' && text[0] <= 'Z' }
	words := fields(s.Range)
	if len(words) > 0 && (!isWord(words[0]) || words[0] == "at" || words[0] == "more") {
		words = nil
	}
	if s.Unset != "" {
		if first := fields(s.Unset)[0]; slices.Contains(words, first) || first[0] >= '0' && first[0] <= '9' {
			out = append(out, first)
		}
	}
	if s.Range == "" {
		name := strings.ToUpper(s.Path[strings.LastIndexByte(s.Path, '.')+1:])
		if s.List {
			name = "[" + name + "]"
		}
		out = append(out, name)
	}
	return append(slices.Concat(out, words), "8", "0.5", "20", "1000", "5s", "64MiB", "true")
}

// quoteYAML returns a value as YAML.
func quoteYAML(value string) string {
	if value == "" || strings.ContainsAny(value[:1], "*&!|>%@`\"'[]{}#,?:- ") || strings.Contains(value, ": ") ||
		strings.Contains(value, " #") {
		return fmt.Sprintf("%q", value)
	}
	return value
}

// sameConfig reports whether two configurations mean the same, with the defaults of models, and of registered parts,
// filled in.
func sameConfig(a, b config.Config) bool {
	for _, c := range []*config.Config{&a, &b} {
		c.Parts = changed(c.Parts)
		c.Models = slices.Clone(c.Models)
		for i, m := range c.Models {
			m = m.WithDefaults()
			kind, _ := workers.Lookup(m.Kind)
			settings, err := kind.Decode(m.Params)
			if err != nil {
				return false
			}
			m.Params, m.Parts = nil, append(changed(m.Parts), settings)
			c.Models[i] = m
		}
	}
	return reflect.DeepEqual(a, b)
}

// changed returns the parts with other values than the defaults.
func changed(parts []any) (out []any) {
	for _, p := range parts {
		v := reflect.ValueOf(p).Elem()
		unset, set := reflect.New(v.Type()), reflect.New(v.Type())
		set.Elem().Set(v)
		setting.DetachCopies(set.Interface())
		for _, x := range []reflect.Value{unset, set} {
			setting.TableOf("", x.Interface()).Fill()
		}
		if !reflect.DeepEqual(set.Interface(), unset.Interface()) {
			out = append(out, set.Interface())
		}
	}
	return out
}

// fileNode is a key in the file: a setting, or a section or list with keys.
type fileNode struct {
	name  string
	set   *config.Setting // nil for a section
	below []*fileNode
}

// fileTree arranges settings by sections.
func fileTree(list []config.Setting) *fileNode {
	top := &fileNode{}
	for i := range list {
		at := top
		for name := range strings.SplitSeq(list[i].Path, ".") {
			j := slices.IndexFunc(at.below, func(n *fileNode) bool { return n.name == name })
			if j < 0 {
				at.below = append(at.below, &fileNode{name: name})
				j = len(at.below) - 1
			}
			at = at.below[j]
		}
		at.set = &list[i]
	}
	return top
}

// write writes the keys below n, and returns whether all are examples.
func (p filePlace) write(w *strings.Builder, n *fileNode, indent string) (examples bool) {
	examples = true
	for _, k := range n.below {
		name, isList := strings.CutSuffix(k.name, "[]")
		set, value, example := k.set, "", false
		var below strings.Builder
		switch {
		case isList: // the dash of an entry stands before the entry's first key
			example = p.write(&below, k, indent+"    ")
			text := below.String()
			at := strings.Index(text, "#"+k.below[0].name+":")
			below.Reset()
			below.WriteString(text[:at-2] + "#- " + text[at+1:])
		case len(k.below) == 1 && k.below[0].name == "NAME":
			set, value, example = k.below[0].set, " {NAME: TENSOR}", true
		case len(k.below) > 0:
			example = p.write(&below, k, indent+"  ")
		default:
			if value = p.find(set.Path); value == "" {
				value, example = p.value(*set)
			}
			value = " " + value
		}
		examples = examples && example
		w.WriteByte('\n')
		if set != nil {
			comment(w, indent, fileText(*set, example))
		}
		fmt.Fprintf(w, "%s#%s:%s", indent, name, value)
		if example {
			w.WriteString(exampleMark)
		}
		w.WriteString("\n" + below.String())
	}
	return examples
}

// fileText describes a setting in the file.
func fileText(s config.Setting, example bool) string {
	text := sentence(s.Doc)
	if s.Range != "" {
		text += " Values: " + s.Range + "."
	}
	switch {
	case example && s.Default != "":
		text += " Default: " + s.Default + "."
	case s.Unset != "":
		text += " Default: " + s.Unset + "."
	}
	if r := requestText(s); r != "" {
		text += " Requests: " + strings.ReplaceAll(r, "`", "") + "."
	}
	return text
}

// sentence returns a help text as a sentence. A text that begins with a value, as in off: ..., keeps the value.
func sentence(s string) string {
	first, rest, _ := strings.Cut(s, " ")
	if !strings.HasSuffix(first, ":") && !strings.HasPrefix(rest, "= ") {
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	return strings.TrimSuffix(s, ".") + "."
}

// comment writes text as lines of comments.
func comment(w *strings.Builder, indent, text string) {
	line := indent + "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > fileColumns {
			w.WriteString(line + "\n")
			line = indent + "#"
		}
		line += " " + word
	}
	w.WriteString(line + "\n")
}

// entry writes an entry of a list, whose first two keys are required.
func (p filePlace) entry(w *strings.Builder, text string, list []config.Setting) {
	w.WriteByte('\n')
	comment(w, "  ", text)
	for i, k := range p.required[:2] {
		fmt.Fprintf(w, "%s%s: %s\n", []string{"  #- ", "    #"}[i], k.path, k.value)
	}
	list = slices.DeleteFunc(slices.Clone(list), func(s config.Setting) bool {
		return s.Path == p.required[0].path || s.Path == p.required[1].path
	})
	for i, k := range list { // a required key is the first key of an entry of a list
		if in, _, nested := strings.Cut(k.Path, "[]."); nested && p.find(k.Path) != "" {
			at := slices.IndexFunc(list, func(s config.Setting) bool { return s.Path == in+"[]" }) + 1
			list = slices.Insert(slices.Delete(list, i, i+1), at, k)
		}
	}
	p.write(w, fileTree(list), "    ")
}

// kindKeys are the keys that a kind of worker requires besides the name and the source.
var kindKeys = map[string][]fileKey{
	"graph":   {{path: "steps[].model", value: "example"}},
	"process": {{path: "command", value: "./program"}},
}

// kindSources are the sources of models whose kind loads files or an address. Other kinds are sources themselves.
var kindSources = map[string]string{
	"onnx": "model.onnx", "python": "program.py", "remote": "http://127.0.0.1:9000/model",
}

// file writes all settings as a commented configuration file.
func (s settings) file(out io.Writer) error {
	var w strings.Builder
	w.WriteString(fileHead)
	filePlace{}.write(&w, fileTree(s.Server), "")
	w.WriteByte('\n')
	comment(&w, "", "The models that are loaded at the start. The variable "+config.EnvModels+
		" adds models, in the notation of --model, separated by semicolons.")
	w.WriteString("#models:\n")
	filePlace{"models", []fileKey{{path: "name", value: "example"}, {path: "source", value: "identity"}}}.entry(&w,
		"The keys of every model. The name of the endpoint and the source are required. The source is a kind of "+
			"worker, or the file, folder or address of the model.", s.Model)
	for _, k := range s.Kinds {
		source := fileKey{"source", cmp.Or(kindSources[k.Name], k.Name), k.Name}
		filePlace{"models", append([]fileKey{{path: "name", value: k.Name}, source}, kindKeys[k.Name]...)}.entry(&w,
			"The kind "+k.Name+": "+sentence(k.Doc)+" The keys of every model apply, too.", k.Settings)
	}
	w.WriteString("\n# Server streams (docs/streams.md).\n#streams:\n")
	filePlace{"streams", []fileKey{{path: "name", value: "example"}, {path: "source", value: "rtsp://127.0.0.1/camera"},
		{path: "model", value: "example"}}}.entry(&w,
		"The keys of every stream. The name and the source are required. The source says where frames come from: a "+
			"file, device, program or address, such as clip.mp4, rtsp://HOST/PATH or folder:PATH.", s.Stream)
	_, err := io.WriteString(out, w.String())
	return err
}
