package streams

import (
	"math"
	"strings"
	"testing"

	"millrace/stream"
)

// NaN and infinities are the words of the JSON of all protocols.
func TestNotFiniteInLines(t *testing.T) {
	r := &stream.Result{Outcome: stream.Answered, Model: &stream.Model{Name: "m"}, Outputs: []stream.Tensor{
		{Name: "y", Datatype: stream.Float64, Shape: []int{1, 2}, Data: make([]byte, 16)}, {Name: "z", Datatype: stream.Float32, Shape: []int{1, 2}, Data: stream.AppendFloat32(nil, float32(math.NaN()), float32(math.Inf(-1)))},
	}}
	var e encoder
	if line := string(e.line("door", "m", r)); !strings.Contains(line, `"data":[NaN,-Infinity]`) || strings.Contains(line, `"error"`) {
		t.Error(line)
	}
}
