package workers

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/modelurl"
	"millrace/internal/setting"
	"millrace/stream"
)

// KindOf returns the kind of worker that loads a source of the configuration, and the text to load, which is empty
// when the source is the name of a kind. Errors have the field source.
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
	listed := strings.Join(names, ", ")
	if source == "" {
		return bad("is missing: want a kind of worker (%s) or a file", listed)
	}
	if modelurl.Is(source) {
		return kindOfURL(source)
	}
	for _, k := range Kinds() {
		if k.Loads == nil || !k.Loads(source) {
			continue
		}
		if file := SourceFile(source); file != "" {
			if _, err := os.Stat(file); err != nil {
				return bad("%q cannot be read: %w", source, err)
			}
		}
		return k.Name, source, nil
	}
	what := unsupportedForm(source)
	if what == folder {
		return bad("%q is a folder: name the program in it, such as ./service.py, or serve a folder of models by "+
			"--model-repository", source)
	}
	if what != "" {
		return bad("%q is %s, and this program has no worker for it: the kinds are %s", source, what, listed)
	}
	if strings.ContainsAny(source, `/\.`) {
		return bad("%q cannot be loaded: want a kind of worker (%s), a .onnx or .py file, a folder or an address; "+
			"an image is container://IMAGE", source, listed)
	}
	return bad("%q is not a kind of worker%s: the kinds are %s. A file is named with its ending, such as ./service.py",
		source, setting.Suggest(source, names), listed)
}

// kindOfURL returns the kind of worker that loads the file of an address. The text to load is the address: the server
// puts the path of the fetched file in its place.
func kindOfURL(source string) (kind, load string, err error) {
	bad := func(format string, args ...any) (string, string, error) {
		return "", "", stream.Errorf(stream.InvalidArgument, "source", format, args...)
	}
	u, err := modelurl.Parse(source)
	if err != nil {
		return bad("%s %w", modelurl.Mask(source), err)
	}
	file := u.File()
	name, _, _ := strings.Cut(file, ":") // FILE.py:CLASS
	for _, k := range Kinds() {
		if k.File != "" && k.Loads != nil && filepath.Ext(name) != "" && k.Loads(name) {
			return k.Name, source, nil
		}
	}
	if file == "" {
		return bad("%s names no file: add # and the path of the .onnx or .py file; a folder of models is the setting "+
			"model_repository", u)
	}
	return bad("%s: the file %q is neither a .onnx nor a .py file", u, file)
}

// SourceFile returns the file or folder of a source, without the name of a class as in service.py:Service. SourceFile
// returns "" for an address, and for a module as in package.module:Service.
func SourceFile(source string) string {
	if strings.Contains(source, "://") {
		return ""
	}
	if _, err := os.Stat(source); err == nil {
		return source
	}
	if IsHostPort(source) {
		return ""
	}
	file, class, found := strings.Cut(source, ":")
	if !found || class == "" || strings.ContainsAny(class, `:/\`) {
		return source
	}
	if _, err := os.Stat(file); err != nil && filepath.Ext(file) != ".py" &&
		!strings.ContainsRune(file, filepath.Separator) {
		return ""
	}
	return file
}

// IsHostPort reports whether a source is the address of another server without a scheme: HOST:PORT, with a number as
// the port.
func IsHostPort(source string) bool {
	host, port, err := net.SplitHostPort(source)
	n, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && bad == nil && n > 0 && host != "" && !strings.ContainsAny(host, `/\@ `)
}

const folder = "a folder"

// unsupportedForm describes a source that no kind of this program loads, for the error
// message.
func unsupportedForm(source string) string {
	st, err := os.Stat(source)
	switch ext := strings.ToLower(filepath.Ext(source)); {
	case strings.Contains(source, "://"):
		return "an address"
	case ext == ".onnx":
		return "an ONNX model"
	case ext == ".py":
		return "a Python service"
	case err == nil && st.IsDir() || strings.HasSuffix(source, string(filepath.Separator)):
		return folder
	}
	return ""
}

// HasSuffix returns a Kind.Loads for files with one of the suffixes in their names, in upper or lower case.
func HasSuffix(suffixes ...string) func(source string) bool {
	return func(source string) bool {
		return slices.Contains(suffixes, strings.ToLower(filepath.Ext(source)))
	}
}
