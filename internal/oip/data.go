package oip

import "millrace/stream/coded"

// array reads the JSON data of one tensor, flat or nested like the shape, into dst.
type array struct {
	s        *scanner
	datatype string
	shape    []int
	dst      []byte
	used     int // bytes of dst
	size     int // of an element in dst; 0 for BYTES
	ints     intRange
	family   family
	at       []int // the index of the open row at each level
}

// family is the reader of a datatype, determined once for all rows, since there may be many short rows.
type family uint8

const (
	integers family = iota
	floats
	bools
	texts
)

// readData reads the array at the scanner as the data of a tensor with n elements, into memory from alloc, and
// returns the memory.
func (s *scanner) readData(datatype string, shape []int, n int, alloc func(int) []byte) ([]byte, error) {
	if s.peek() != '[' {
		return nil, s.unexpected("an array")
	}
	if datatype == FP16 || datatype == BF16 {
		return nil, s.fail("is JSON, which has no " + datatype + "; send the tensor as binary data (binary_data_size)")
	}
	// An element has at least a character and a comma: no memory is allocated for a shape
	// with more elements than the text can have.
	left := len(s.buf) - s.pos
	if n > left/2 {
		return nil, s.fail("is too short for the " + itoa(n) + " elements of shape " + shapeText(shape))
	}
	a := array{s: s, datatype: datatype, shape: shape, size: SizeOf(datatype)}
	a.at = s.rows[:0]
	switch datatype {
	case FP32, FP64:
		a.family = floats
	case Bool:
		a.family = bools
	case Bytes:
		a.family = texts
	default:
		a.ints, _ = intRangeOf(datatype)
	}
	need := n * a.size
	if datatype == Bytes {
		start := s.pos
		if err := s.skipArray(); err != nil {
			return nil, err
		}
		a.size, need = 0, bytesBound(s.pos-start, n)
		s.pos = start
	}
	if n > 0 {
		dst := alloc(need)
		if len(dst) < need {
			return nil, noMemory(s.field(), need)
		}
		a.dst = dst[:need]
	}
	s.pos++
	s.space()
	var err error
	if s.peek() == '[' {
		err = a.nested(0)
		s.rows = a.at[:0]
	} else {
		err = a.row(n)
	}
	if err != nil {
		return nil, err
	}
	return a.dst[:a.used:a.used], nil
}

// nested reads the rows of one level, after the opening bracket.
func (a *array) nested(level int) error {
	if level == len(a.shape)-1 {
		return a.row(a.shape[level])
	}
	if level == len(a.shape) { // a scalar
		return a.fail("is nested deeper than the " + itoa(len(a.shape)) + " dimensions of shape " + shapeText(a.shape))
	}
	a.at = append(a.at, 0)
	s := a.s
	for k := 0; ; k++ {
		a.at[level] = k
		done, err := s.nextItem(k == 0)
		if err != nil {
			return a.withPosition(err)
		}
		if done {
			a.at = a.at[:level]
			if k != a.shape[level] {
				return a.count(k, a.shape[level])
			}
			return nil
		}
		if k == a.shape[level] {
			a.at = a.at[:level]
			return a.fail("has more than " + itoa(k) + " rows; expected that many for shape " + shapeText(a.shape))
		}
		if s.peek() != '[' {
			return a.fail("found " + s.describe(s.pos) +
				"; expected an array, as the data is nested and its shape is " +
				shapeText(a.shape))
		}
		s.pos++
		if err := a.nested(level + 1); err != nil {
			return err
		}
	}
}

// row reads n elements and the closing bracket.
func (a *array) row(n int) error {
	s := a.s
	var count, used int
	var p problem
	switch dst := a.dst[a.used:]; a.family {
	case floats:
		s.pos, count, p = readFloats(s.buf, s.pos, dst, n, a.size)
	case bools:
		s.pos, count, p = readBools(s.buf, s.pos, dst, n)
	case texts:
		s.pos, count, used, p = readTexts(s.buf, s.pos, dst, n)
	default:
		s.pos, count, p = readInts(s.buf, s.pos, dst, n, a.ints, a.size)
	}
	if p != none {
		return a.explain(p, count, n)
	}
	a.used += count*a.size + used
	s.space()
	switch s.peek() {
	case ']':
		s.pos++
		return nil
	case ',':
		return a.fail("has more than " + itoa(n) + " elements; expected that many for shape " + shapeText(a.shape))
	case 0:
	default:
		if n == 0 {
			return a.fail("found " + s.describe(s.pos) + "; expected no element for shape " + shapeText(a.shape))
		}
	}
	return a.withPosition(s.unexpected("',' or ']'"))
}

// explain returns the error that stopped the reading of a row of n elements at element count.
func (a *array) explain(p problem, count, n int) error {
	s := a.s
	if p == tooFew {
		return a.count(count, n)
	}
	if p == noComma {
		return a.withPosition(s.unexpected("',' or ']'"))
	}
	a.at = append(a.at, count)
	found := s.describe(s.pos)
	switch c := s.peek(); {
	case p == tooBig:
		return a.fail("is " + found + ", which is outside of " + a.datatype + a.rangeText())
	case p == fraction:
		return a.fail("is " + found + "; expected an integer for " + a.datatype)
	case p == badText:
		return a.fail("is not a valid string; expected UTF-8 with JSON's escapes (other bytes as binary data)")
	case c == '[':
		return a.fail("is an array; expected " + a.kind() + " for shape " + shapeText(a.shape) +
			" (data is flat or nested as the shape is)")
	case found == "NaN" || found == "-NaN" || found == "Infinity" || found == "-Infinity" || found == "inf" ||
		found == "nan":
		return a.fail("is " + found + ", which JSON does not have; send the tensor as binary data (binary_data_size)")
	case c == 0:
		return a.withPosition(s.unexpected(a.kind()))
	}
	return a.fail("is " + found + "; expected " + a.kind() + " for " + a.datatype)
}

func (a *array) kind() string {
	switch a.datatype {
	case FP32, FP64:
		return "a number"
	case Bool:
		return "true or false"
	case Bytes:
		return "a string"
	}
	return "an integer"
}

// rangeText describes the range of an integer type.
func (a *array) rangeText() string {
	switch a.datatype {
	case FP32, FP64:
		return ""
	}
	low := "0"
	if a.ints.below > 0 {
		low = "-" + utoa(a.ints.below)
	}
	return " (" + low + " to " + utoa(a.ints.above) + ")"
}

func (a *array) count(got, want int) error {
	return a.fail("has " + itoa(got) + " elements; expected " + itoa(want) + " for shape " + shapeText(a.shape))
}

// fail returns an error about the element or row at a.at.
func (a *array) fail(msg string) error {
	var extra []segment
	for _, i := range a.at {
		extra = append(extra, segment{i: i})
	}
	return a.s.fail(msg, extra...)
}

// withPosition adds the position of the element to a syntax error.
func (a *array) withPosition(err error) error {
	e, ok := err.(*coded.Error)
	if !ok {
		return err
	}
	return a.fail(e.Msg)
}
