package process

import (
	"slices"

	"millrace/stream"
	"millrace/stream/coded"
)

// codeOf returns the code with a name, or "" if there is none.
func codeOf(name string) stream.Code {
	if slices.Contains(coded.Codes, stream.Code(name)) {
		return stream.Code(name)
	}
	return ""
}
