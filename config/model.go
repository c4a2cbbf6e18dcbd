package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"millrace/internal/modelurl"
	"millrace/internal/setting"
	"millrace/stream/coded"
	"millrace/workers"
)

// model reads an entry of models.
func (r *reader) model(at string, node ast.Node) workers.Config {
	return r.modelFrom(at, node, "")
}

// modelFrom reads an entry. source is the default for an entry without a source.
func (r *reader) modelFrom(at string, node ast.Node, source string) (m workers.Config) {
	m.Source = cmp.Or(sourceOf(node), source)
	s := modelSection(&m)
	r.section(&s, at, "", node)
	if _, isKind := workers.Lookup(m.Source); !isKind && m.Source != source && !strings.Contains(m.Source, "://") &&
		strings.ContainsAny(m.Source, `/\.`) {
		m.Source = inDir(r.dir, m.Source)
	}
	return m
}

// ReadModel reads the configuration of one model, the config.yaml in the model's folder of a repository. file is the
// path for errors; source is the default for a configuration without a source.
func ReadModel(text []byte, file, source string) (m workers.Config, err error) {
	r := reader{name: file, dir: filepath.Dir(file), lines: map[string]int{}, wrong: map[string]bool{}}
	m.Source = source
	r.documents(text, func(body ast.Node) {
		if body != nil {
			m = r.modelFrom("", body, source)
		}
	})
	return m, setting.Join(r.errs...)
}

// sourceOf returns the source of an entry. The source is read first, since the source determines the kind of worker,
// and so the parameters.
func sourceOf(node ast.Node) string {
	mapping, ok := node.(*ast.MappingNode)
	if !ok {
		return ""
	}
	for _, v := range mapping.Values {
		if name, _ := keyName(v.Key); name == "source" && v.Value.GetToken() != nil {
			return v.Value.GetToken().Value
		}
	}
	return ""
}

// modelSection reads the keys of a model: settings, and parameters of the model's kind of worker.
func modelSection(m *workers.Config) section {
	s := section{table: m.Table()}
	name, _, err := workers.KindOf(m.Source)
	kind, _ := workers.Lookup(name)
	s.listTable = kind.Table()
	s.put = func(name string, value any) {
		if m.Params == nil {
			m.Params = map[string]any{}
		}
		m.Params[name] = value
	}
	s.readUnknown = func(name string, values []string) error {
		top, _, nested := strings.Cut(name, ".")
		switch {
		case name == "input" && slices.Equal(values, []string{"tensors"}), name == "output" &&
			slices.Equal(values, []string{"none"}):
			return nil // no value equals a missing key
		case s.table.IsSection(name) || nested && s.table.IsSection(top):
			return s.unknown(name)
		case err != nil:
			return nil // an unknown source is reported separately
		}
		if l, ok := s.listTable.FindList(name); ok {
			return coded.Errorf(coded.InvalidArgument, name,
				"is a list of sections with %s: write it into a configuration file, see --config",
				strings.Join(l.Describe().Below(""), ", "))
		}
		f, ok := kind.Table().Find(name)
		if !ok {
			return unknownParameter(kind, s.table, name)
		}
		if err := f.Set(values...); err != nil {
			return err
		}
		if f.IsList() { // parameters are plain values
			text, err := json.Marshal(values)
			s.put(name, string(text))
			return err
		}
		s.put(name, f.Value())
		return nil
	}
	return s
}

// unknownParameter returns the error for a key that is neither a setting of the model nor a parameter of its kind of
// worker.
func unknownParameter(kind workers.Kind, model *setting.Table, name string) error {
	own := kind.Table().Below("")
	known := slices.Concat(own, model.Below(""))
	for _, f := range model.Fields() {
		known = append(known, f.Path)
	}
	hint := setting.SuggestPath(name, known)
	inside, found := strings.CutPrefix(name, "params.")
	switch {
	case found && slices.Contains(known, inside): // as in load requests
		hint = ": write " + inside + " beside name and source, not below params"
	case hint == "" && kindWith(name) != "":
		hint = ": it is a parameter of " + kindWith(name) + ", and the source is not of the kind"
	case hint == "" && len(own) == 0:
		hint = ": it has no parameters"
	case hint == "":
		hint = ": it has " + strings.Join(own, ", ")
	}
	return coded.Errorf(coded.InvalidArgument, name, "is neither a setting of a model nor a parameter of %s%s",
		kind.Name, hint)
}

// kindWith returns the first kind of worker that has a parameter, or "".
func kindWith(parameter string) string {
	for _, k := range workers.Kinds() {
		if _, has := k.Table().Find(parameter); has {
			return k.Name
		}
	}
	return ""
}

// ParseModel reads NAME=SOURCE[,key=value...]. The keys are the keys of a model in the file, with dots for nested
// keys. Lists are written [a,b,c], and text in quotes (") may contain commas. Programs that embed the server use
// ParseModel for server.Config.Models, because settings such as output=boxes are not in workers.Config.Params.
func ParseModel(spec string) (workers.Config, error) {
	parts, err := splitOutside(spec, ',')
	if err != nil {
		return workers.Config{}, coded.Errorf(coded.InvalidArgument, "model", "%q %w", spec, err)
	}
	name, source, _ := strings.Cut(parts[0], "=")
	m := workers.Config{Name: strings.TrimSpace(name), Source: unquote(source)}
	if m.Name == "" || m.Source == "" {
		return workers.Config{}, coded.Errorf(coded.InvalidArgument, "model", "%q is not NAME=SOURCE[,key=value...]",
			spec)
	}
	return m, setParts(&m, m.Name, parts[1:])
}

// ParseSource reads SOURCE[,key=value...], the argument of `millrace serve`, and names the model after SOURCE. The
// name of a file or folder may contain commas. Errors about settings begin with SOURCE.
func ParseSource(spec string) (workers.Config, error) {
	if _, err := os.Stat(spec); err == nil {
		return ModelFor(spec), nil
	}
	parts, err := splitOutside(spec, ',')
	if err != nil {
		return workers.Config{}, coded.Errorf(coded.InvalidArgument, "SOURCE", "%q %w", spec, err)
	}
	m := ModelFor(unquote(parts[0]))
	return m, setParts(&m, "SOURCE", parts[1:])
}

// setParts sets a model's settings from texts key=value. Errors begin with at.
func setParts(m *workers.Config, at string, parts []string) error {
	s := modelSection(m)
	seen := map[string]bool{}
	var errs []error
	for _, part := range parts {
		key, value, ok := strings.Cut(part, "=")
		key = strings.TrimSpace(key)
		var err error
		switch {
		case !ok || key == "":
			err = coded.Errorf(coded.InvalidArgument, "", "%q is not key=value", part)
		case key == "name" || key == "source":
			err = coded.Errorf(coded.InvalidArgument, key, "is given already, as NAME=SOURCE")
		case seen[key]:
			err = coded.Errorf(coded.InvalidArgument, key, "is given twice")
		case slices.Contains(strings.Split(key, "."), ""):
			err = coded.Errorf(coded.InvalidArgument, key, "is not a setting")
		default:
			err = s.set(key, valuesOf(value))
		}
		seen[key] = true
		if err != nil {
			errs = append(errs, coded.PrefixField(at, err))
		}
	}
	return setting.Join(errs...)
}

// splitOutside splits s at separators outside of brackets and quotes.
func splitOutside(s string, sep rune) (parts []string, err error) {
	quoted, depth, from := false, 0, 0
	for i, r := range s {
		switch {
		case r == '"':
			quoted = !quoted
		case quoted:
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == sep && depth == 0:
			parts, from = append(parts, s[from:i]), i+1
		}
		if depth < 0 || depth > 1 {
			return nil, fmt.Errorf("has brackets that do not match")
		}
	}
	if quoted || depth != 0 {
		return nil, fmt.Errorf("has a quote or bracket without its end")
	}
	return append(parts, s[from:]), nil
}

// valuesOf reads a value, or a list of values, in the notation of --model.
func valuesOf(s string) []string {
	s = strings.TrimSpace(s)
	if len(s) < 2 || s[0] != '[' || s[len(s)-1] != ']' {
		return []string{unquote(s)}
	}
	values := strings.Split(s[1:len(s)-1], ",")
	for i := range values {
		values[i] = unquote(values[i])
	}
	return values
}

func unquote(s string) string {
	s = strings.TrimSpace(s)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

// ModelFor returns the model of `millrace serve SOURCE`, named after the file, folder or
// kind.
func ModelFor(source string) workers.Config {
	name := filepath.Base(filepath.Clean(source))
	folder := slices.ContainsFunc(workers.Kinds(), func(k workers.Kind) bool {
		return k.Folder != nil && k.Folder(name)
	})
	if abs, err := filepath.Abs(source); err == nil && (name == "." || name == ".." || folder) {
		if folder {
			abs = filepath.Dir(abs)
		}
		name = filepath.Base(abs)
	}
	if _, ok := workers.Lookup(source); ok {
		name = source
	}
	if u, err := modelurl.Parse(source); err == nil && modelurl.Is(source) {
		name = u.File()
	}
	if i := strings.IndexByte(name, '.'); i > 0 {
		name = name[:i]
	}
	return workers.Config{Name: usableName(name), Source: source}
}

// usableName returns the name of a model for a file: the file's name, with a dash for characters not allowed in
// names, such as spaces.
func usableName(file string) string {
	var b strings.Builder
	for _, r := range file {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			b.WriteRune(r)
		case !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	name := b.String()
	if name != file || len(name) > 128 {
		name = strings.Trim(name, "-.")
		name = cmp.Or(name[:min(len(name), 128)], "model")
	}
	return name
}

// AddModels adds models in the notation of --model, NAME=SOURCE[,key=value...]. A model replaces an earlier model of
// the same name, but a name may occur only once in a call.
func (c *Config) AddModels(specs ...string) error {
	seen := map[string]bool{}
	var errs []error
	for _, spec := range specs {
		m, err := ParseModel(spec)
		if err == nil && seen[m.Name] {
			err = coded.Errorf(coded.InvalidArgument, "model", "%q is given twice", m.Name)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		seen[m.Name] = true
		c.put(m)
	}
	return setting.Join(errs...)
}

func (c *Config) put(m workers.Config) {
	c.Models = slices.Clone(c.Models)
	if i := slices.IndexFunc(c.Models, func(o workers.Config) bool { return o.Name == m.Name }); i >= 0 {
		c.Models[i] = m
		return
	}
	c.Models = append(c.Models, m)
}
