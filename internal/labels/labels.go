// Package labels reads files with the names of classes, one name per line. The package must not know the use of the
// classes.
package labels

import (
	"bytes"
	"fmt"
	"os"
	"unicode/utf8"

	"millrace/internal/textfile"
)

// The bounds of a file.
const (
	maxFile = 4 << 20
	maxName = 1024
)

// Read returns the names in a file. The text of an error names the file and the expected contents.
func Read(path string) ([]string, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	}
	text, err := textfile.Read(path, maxFile)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: want a file with a name per line", err)
	case !utf8.Valid(text):
		return nil, fmt.Errorf("%s is not UTF-8 text: want a file with a name per line", path)
	}
	text = bytes.TrimRight(bytes.TrimPrefix(text, []byte("\ufeff")), " \t\r\n")
	if len(text) == 0 {
		return nil, fmt.Errorf("%s is empty: want a name per line", path)
	}
	var names []string
	for n, line := range bytes.Split(text, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) > maxName {
			return nil, fmt.Errorf("line %d of %s is longer than %d bytes", n+1, path, maxName)
		}
		names = append(names, string(line))
	}
	return names, nil
}
