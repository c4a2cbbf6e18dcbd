package graph

import (
	"encoding/binary"
	"fmt"
	"math"

	"millrace/internal/condition"
	"millrace/stream"
)

// Condition compares a number computed from a tensor with a fixed number. The zero Condition always holds.
type Condition struct {
	Func   string // count, max, min or sum
	Tensor string
	Op     string // > >= < <= == !=
	Value  float64
}

// UnmarshalText reads FUNC(TENSOR) OP NUMBER.
func (c *Condition) UnmarshalText(text []byte) error {
	read, ok := condition.Parse(string(text), "count", "max", "min", "sum")
	if !ok {
		return fmt.Errorf("%.140q is not a condition: want count, max, min or sum of a tensor, compared with a number "+
			"by > >= < <= == or !=, such as count(boxes) > 0", text)
	}
	*c = Condition{read.Func, read.Of, read.Op, read.Value}
	return nil
}

// MarshalText writes the condition in the form read by UnmarshalText.
func (c Condition) MarshalText() ([]byte, error) {
	if c == (Condition{}) {
		return nil, nil
	}
	return []byte(c.shared().String()), nil
}

// holds reports whether the condition holds for a tensor, of which dims are the dimensions
// without a batch axis. Without elements max and min do not hold, and count and sum are 0.
func (c *Condition) holds(t *stream.Tensor, dims []int) (bool, error) {
	if c.Func == "count" {
		n := 1
		if len(dims) > 0 {
			n = dims[0]
		}
		return c.compare(float64(n)), nil
	}
	size := t.Datatype.Size()
	if size == 0 {
		return false, fmt.Errorf("%s of %s is not possible: count is", c.Func, t.Datatype)
	}
	result, n := 0.0, 0
	for data := t.Data; len(data) >= size; data = data[size:] {
		v := element(t.Datatype, data)
		switch {
		case c.Func == "sum":
			result += v
		case n == 0, c.Func == "max" && v > result, c.Func == "min" && v < result:
			result = v
		}
		n++
	}
	if n == 0 && c.Func != "sum" {
		return false, nil
	}
	return c.compare(result), nil
}

func (c *Condition) shared() condition.Condition {
	return condition.Condition{Func: c.Func, Of: c.Tensor, Op: c.Op, Value: c.Value}
}

func (c *Condition) compare(v float64) bool { return c.shared().Holds(v) }

// element reads the first element of data.
func element(t stream.Datatype, data []byte) float64 {
	switch t {
	case stream.Bool, stream.Uint8:
		return float64(data[0])
	case stream.Int8:
		return float64(int8(data[0]))
	case stream.Uint16:
		return float64(binary.LittleEndian.Uint16(data))
	case stream.Int16:
		return float64(int16(binary.LittleEndian.Uint16(data)))
	case stream.Float16:
		return float64(stream.HalfToFloat32(binary.LittleEndian.Uint16(data)))
	case stream.BFloat:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(data)) << 16))
	case stream.Uint32:
		return float64(binary.LittleEndian.Uint32(data))
	case stream.Int32:
		return float64(int32(binary.LittleEndian.Uint32(data)))
	case stream.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
	case stream.Uint64:
		return float64(binary.LittleEndian.Uint64(data))
	case stream.Int64:
		return float64(int64(binary.LittleEndian.Uint64(data)))
	case stream.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(data))
	}
	return math.NaN()
}
