package postprocess

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"unicode/utf8"
)

// The bounds of a file of labels.
const (
	maxLabelFile = 4 << 20
	maxLabel     = 1024
)

// labels are the names of classes as elements of a BYTES tensor.
type labels [][]byte

var unnamed = make([]byte, 4)

// readLabels reads a name per line for at least classes classes (-1 = unknown).
// There are none without a file.
func (c Config) readLabels(classes int) (labels, error) {
	if c.Labels == "" {
		return nil, nil
	}
	f, err := os.Open(c.Labels)
	if err != nil {
		return nil, c.bad("labels", "%w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxLabelFile+1))
	if err != nil {
		return nil, c.bad("labels", "%w", err)
	}
	if len(text) > maxLabelFile {
		return nil, c.bad("labels", "%s is larger than %d bytes: want a file with a name per line", c.Labels, maxLabelFile)
	}
	if !utf8.Valid(text) {
		return nil, c.bad("labels", "%s is not UTF-8 text: want a file with a name per line", c.Labels)
	}
	text = bytes.TrimRight(bytes.TrimPrefix(text, []byte("\ufeff")), " \t\r\n")
	if len(text) == 0 {
		return nil, c.bad("labels", "%s is empty: want a name per line", c.Labels)
	}
	var l labels
	for n, line := range bytes.Split(text, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) > maxLabel {
			return nil, c.bad("labels", "line %d of %s is longer than %d bytes", n+1, c.Labels, maxLabel)
		}
		l = append(l, append(binary.LittleEndian.AppendUint32(nil, uint32(len(line))), line...))
	}
	if c.Background && len(l) == classes+1 {
		return nil, c.bad("labels", "%s has %d names for %d classes: leave the name of the background out", c.Labels, len(l), classes)
	}
	return l, c.enough(l, classes)
}

// enough says whether each class has a name.
func (c Config) enough(l labels, classes int) error {
	if l != nil && len(l) < classes {
		return c.bad("labels", "%s has %d names for %d classes: want a name per line", c.Labels, len(l), classes)
	}
	return nil
}

// append writes the name of class as an element; an empty one when it has none.
func (l labels) append(dst []byte, class int) []byte {
	if class < 0 || class >= len(l) {
		return append(dst, unnamed...)
	}
	return append(dst, l[class]...)
}
