package python

import "slices"

// Style is another system for which programs in Python were written.
type Style struct {
	Name string
	// File is the name of the file that describes a program of the style, for a source that is the file or a folder
	// with the file; "" = programs have no such file.
	File string
	// Options returns what the child gets in the option Name: nil when the program is not of the style. chosen is the
	// setting style of the model, and args are the arguments of the program. nil = the child gets nothing.
	Options func(source, chosen string, args []string) (map[string]any, error)
}

var styles []Style

// Register adds a style. Call it from init.
func Register(s Style) { styles = append(styles, s) }

// styleName is the setting style.
type styleName string

// Words returns the allowed values.
func (styleName) Words() []string {
	out := []string{"millrace"}
	for _, s := range styles {
		out = append(out, s.Name)
	}
	return out
}

// describes reports whether a file of that name describes a program.
func describes(file string) bool {
	return slices.ContainsFunc(styles, func(s Style) bool { return s.File != "" && s.File == file })
}
