package workers

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/internal/setting"
	"millrace/stream"
)

// KindOf tells which kind of worker a source of the configuration is for, and what
// that is given to load: nothing where the source is the name of a kind. Errors are
// about the setting source.
func KindOf(source string) (kind, load string, err error) {
	bad := func(format string, args ...any) (string, string, error) {
		return "", "", stream.Errorf(stream.InvalidArgument, "source", format, args...)
	}
	var names []string
	for _, k := range Kinds() {
		if k.Name == source {
			return source, "", nil
		}
		names = append(names, k.Name)
	}
	there := strings.Join(names, ", ")
	if source == "" {
		return bad("is missing: want a kind of worker (%s) or a file", there)
	}
	for _, k := range Kinds() {
		if k.Loads == nil || !k.Loads(source) {
			continue
		}
		if _, err := os.Stat(source); err != nil && !strings.Contains(source, "://") {
			return bad("%q cannot be read: %w", source, err)
		}
		return k.Name, source, nil
	}
	if what := otherForm(source); what != "" {
		return bad("%q is %s, and this program has no worker for it: there are %s", source, what, there)
	}
	if strings.ContainsAny(source, `/\.`) {
		return bad("%q is nothing that can be loaded here: want a kind of worker (%s), a .onnx or .py file, a folder or an address", source, there)
	}
	return bad("%q is no kind of worker%s: there are %s", source, setting.Suggest(source, names), there)
}

// otherForm says what a source is that no kind of this program loads, so that the
// error can say so.
func otherForm(source string) string {
	st, err := os.Stat(source)
	switch ext := strings.ToLower(filepath.Ext(source)); {
	case strings.Contains(source, "://"):
		return "an address"
	case ext == ".onnx":
		return "an ONNX model"
	case ext == ".py":
		return "a Python service"
	case err == nil && st.IsDir() || strings.HasSuffix(source, string(filepath.Separator)):
		return "a folder"
	}
	return ""
}

// HasSuffix returns a Kind.Loads for files whose names end in one of the suffixes, in
// small or large letters.
func HasSuffix(suffixes ...string) func(source string) bool {
	return func(source string) bool {
		return slices.Contains(suffixes, strings.ToLower(filepath.Ext(source)))
	}
}
