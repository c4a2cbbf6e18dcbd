package build

import (
	"encoding/json"
	"io"

	"millrace/internal/newfile"
)

// maxReport is the largest file that is read from an environment.
const maxReport = 64 << 20

// writeControl replaces a file in a folder where programs of applications do not write.
func writeControl(path string, v any) error {
	text, err := encode(v)
	if err != nil {
		return err
	}
	return newfile.Write(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

func encode(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	return append(text, '\n'), err
}
