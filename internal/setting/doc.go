// Package setting reads the descriptions of settings from the tags of struct fields. The tags are in the configured
// struct, so that a new setting is one field:
//
//	type Settings struct {
//		Changed float64       `yaml:"changed" min:"0" max:"1" help:"share of the picture that must change"`
//		Refresh time.Duration `yaml:"refresh" default:"1s" min:"1ms" help:"a run at least so often"`
//	}
//
// A field with a help tag is a setting. The tags:
//
//	yaml, json    the setting's name (yaml's first); of a struct, the name of a section; ",inline" = no section
//	help          the description, for users
//	default       the value of a field left at zero, in the notation of a file
//	example       an allowed value, if bounds and words do not give one
//	unset         the meaning of leaving the field out, in words, if there is no default
//	unset_all     of a section: unset of each of its settings, also of settings with their own unset
//	min, max      bounds, in the notation of a file; above and below exclude the bound itself
//	words         the allowed values, separated by spaces; a type may have a method Words() []string instead
//	form          name: letters, digits, dots, dashes and underscores, as in a path;
//	              address: HOST:PORT or off; socket: an address or unix:/PATH; route: a path such as /metrics
//	unit          bytes: written 64MiB; ms: a time.Duration written as a number of milliseconds
//	request       "any" if a request may set the setting, or the largest value in a request
//	              (request and unset of a section apply to its settings, too)
//	short         other names allowed in requests, separated by spaces
//	advanced      "yes": most users never set the field, so that lists of settings show the field only when asked
//	              for all; of a section: each of its settings is advanced
//	path          "file": a path relative to the folder of the configuration file
//
// Settings are strings, bool, int, int64, float64, time.Duration, []string, []float64, [][]float64 (points), arrays of
// float32, types that implement encoding.TextUnmarshaler, and pointers to these. A slice of structs is a List: each
// entry has the settings of its struct. A map[string]string is a Names. Zero means the default, so 0 is refused unless
// min allows 0. A setting that may be zero although its default is not must be a pointer.
//
// Join joins several errors into one, and Split splits the joined error.
//
// The package must not know files or protocols. Package config reads the file. Registered parts add their settings
// with Register.
package setting
