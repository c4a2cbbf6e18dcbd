// Package setting reads the descriptions of settings off the tags of struct
// fields. The struct that is configured is the struct that is tagged, so that a
// new setting is one field:
//
//	type Settings struct {
//		Changed float64       `yaml:"changed" min:"0" max:"1" help:"share of the picture that must change"`
//		Refresh time.Duration `yaml:"refresh" default:"1s" min:"1ms" help:"a run at least so often"`
//	}
//
// A field with a help tag is a setting. The tags:
//
//	yaml, json    its name (yaml's first); of a struct, the name of a section; ",inline" = no section
//	help          what it means, for people
//	default       what a field left at zero takes, as it is written in a file
//	unset         in words, what a field left out means where it has no default
//	min, max      bounds, as written in a file; above and below are those without the bound itself
//	words         the only values, separated by spaces; a type with a method Words() []string brings its own
//	form          name: letters, digits, dots, dashes and underscores, as in a path;
//	              address: HOST:PORT or off
//	unit          bytes: written 64MiB; ms: a time.Duration written as a number of milliseconds
//	request       "any" where a request may set it, or the most that one may ask for
//	              (request and unset of a section hold for what it has, too)
//	short         other names that requests may use, separated by spaces
//	path          "file": a path that starts from the folder of the configuration file
//
// Settings are strings, bool, int, int64, float64, time.Duration, []string, arrays
// of float32, types that implement encoding.TextUnmarshaler, and pointers to these.
// Zero means the default, so that 0 is refused where min does not allow it; a
// field of which zero is a choice beside its default is a pointer.
//
// Join and Split make one error of many and back.
//
// The package knows neither files nor protocols. Package config reads the file;
// parts that register themselves add their settings with Register.
package setting
