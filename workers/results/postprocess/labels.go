package postprocess

import (
	"encoding/binary"

	names "millrace/internal/labels"
	"millrace/stream"
)

// labels are the names of classes.
type labels struct {
	file  string
	names [][]byte // as elements of a BYTES tensor; nil = no names
}

var unnamed = make([]byte, 4)

// readLabels reads one name per line for at least classes classes (-1 = unknown). Without a file of labels the names
// come from the model's file, if any. With background, exactly one name too many is an error: probably a name for the
// background, which must be left out.
func (f *finder) readLabels(classes int, background bool) (l labels, err error) {
	list := f.names
	if f.labels != "" {
		l.file = f.labels
		if list, err = names.Read(l.file); err != nil {
			return l, badLabels("%w", err)
		}
	}
	if list == nil {
		return l, nil
	}
	for _, name := range list {
		l.names = append(l.names, append(binary.LittleEndian.AppendUint32(nil, uint32(len(name))), name...))
	}
	if background && len(l.names) == classes+1 {
		return l, badLabels("%s has %d names for %d classes: leave the name of the background out", l.file,
			len(l.names), classes)
	}
	return l, l.check(classes)
}

func badLabels(format string, args ...any) error {
	return stream.Errorf(stream.InvalidArgument, "output.labels", format, args...)
}

// check returns an error unless each class has a name in the file.
func (l labels) check(classes int) error {
	if l.names != nil && len(l.names) < classes {
		return badLabels("%s has %d names for %d classes: want a name per line", l.file, len(l.names), classes)
	}
	return nil
}

// append appends the name of class as an element; a class without a name gives an empty element.
func (l labels) append(dst []byte, class int) []byte {
	if class < 0 || class >= len(l.names) {
		return append(dst, unnamed...)
	}
	return append(dst, l.names[class]...)
}
