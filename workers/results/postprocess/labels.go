package postprocess

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"unicode/utf8"

	"millrace/stream"
)

// The bounds of a file of labels.
const (
	maxLabelFile = 4 << 20
	maxLabel     = 1024
)

// labels are the names of classes.
type labels struct {
	file  string
	names [][]byte // as elements of a BYTES tensor; nil = no names
}

var unnamed = make([]byte, 4)

// readLabels reads one name per line for at least classes classes (-1 = unknown).
// Without a file there are no names. background says that a file with one name more
// probably has a name for the background, which it must not have.
func (f *finder) readLabels(classes int, background bool) (l labels, err error) {
	if f.labels == "" {
		return l, nil
	}
	l.file = f.labels
	file, err := os.Open(l.file)
	if err != nil {
		return l, badLabels("%w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxLabelFile+1))
	if err != nil {
		return l, badLabels("%w", err)
	}
	if len(text) > maxLabelFile {
		return l, badLabels("%s is larger than %d bytes: want a file with a name per line", l.file, maxLabelFile)
	}
	if !utf8.Valid(text) {
		return l, badLabels("%s is not UTF-8 text: want a file with a name per line", l.file)
	}
	text = bytes.TrimRight(bytes.TrimPrefix(text, []byte("\ufeff")), " \t\r\n")
	if len(text) == 0 {
		return l, badLabels("%s is empty: want a name per line", l.file)
	}
	for n, line := range bytes.Split(text, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) > maxLabel {
			return l, badLabels("line %d of %s is longer than %d bytes", n+1, l.file, maxLabel)
		}
		l.names = append(l.names, append(binary.LittleEndian.AppendUint32(nil, uint32(len(line))), line...))
	}
	if background && len(l.names) == classes+1 {
		return l, badLabels("%s has %d names for %d classes: leave the name of the background out", l.file, len(l.names), classes)
	}
	return l, l.check(classes)
}

func badLabels(format string, args ...any) error {
	return stream.Errorf(stream.InvalidArgument, "output.labels", format, args...)
}

// check returns an error unless each class has a name.
func (l labels) check(classes int) error {
	if l.names != nil && len(l.names) < classes {
		return badLabels("%s has %d names for %d classes: want a name per line", l.file, len(l.names), classes)
	}
	return nil
}

// append appends the name of class as an element, or an empty one when it has no name.
func (l labels) append(dst []byte, class int) []byte {
	if class < 0 || class >= len(l.names) {
		return append(dst, unnamed...)
	}
	return append(dst, l.names[class]...)
}
