package process

import (
	"slices"

	"millrace/stream"
	"millrace/stream/coded"
)

// codeOf returns the code with the given name, or "".
func codeOf(name string) stream.Code {
	if slices.Contains(coded.Codes, stream.Code(name)) {
		return stream.Code(name)
	}
	return ""
}
