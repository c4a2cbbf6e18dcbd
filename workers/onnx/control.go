//go:build cgo

package onnx

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"millrace/stream"
)

// A model of sequences may have inputs with the position of a row in its sequence. Clients do not send these inputs,
// called controls: the worker writes the controls before a run.

// control is one such input.
type control struct {
	in      int           // index among the session's inputs
	what    string        // start, end, ready or id
	no, yes []byte        // the element; not of id
	input   stream.Tensor // of a run; the first dimension is the rows
	memory  []byte        // of max rows
	texts   []string      // of max rows, for a string id
}

// findControls reads the setting: "INPUT=start[:FALSE,TRUE]; INPUT=id; ...".
func (w *worker) findControls(text string) error {
	s := w.session
	for entry := range strings.SplitSeq(text, ";") {
		input, what, ok := strings.Cut(strings.TrimSpace(entry), "=")
		what, values, valued := strings.Cut(strings.TrimSpace(what), ":")
		if !ok || !slices.Contains([]string{"start", "end", "ready", "id"}, what) || valued && what == "id" {
			return stream.Errorf(stream.InvalidArgument, "controls", "has the entry %q: want INPUT=start, "+
				"INPUT=end, INPUT=ready (each with :FALSE,TRUE for other values than 0,1) or INPUT=id, with ; "+
				"between entries", strings.TrimSpace(entry))
		}
		c := control{in: position(s.inputs, strings.TrimSpace(input)), what: what}
		switch {
		case c.in < 0:
			return stream.Errorf(stream.InvalidArgument, "controls", "names the input %q: the model has %s",
				strings.TrimSpace(input), names(s.inputs))
		case slices.Contains(w.controlInputs, c.in) || slices.Contains(w.stateInputs, c.in):
			return stream.Errorf(stream.InvalidArgument, "controls", "names %s twice, or state names it too",
				s.inputs[c.in].Name)
		}
		d := datatypes[s.inputs[c.in].DataType]
		if what == "id" && !slices.Contains([]stream.Datatype{stream.Int32, stream.Uint32, stream.Int64, stream.Uint64,
			stream.Bytes}, d) || what != "id" && d.Size() == 0 {
			return stream.Errorf(stream.Unsupported, "controls",
				"input %s is %s: want a number, and INT32, UINT32, INT64, UINT64 or BYTES for id", s.inputs[c.in].Name,
				d)
		}
		if what != "id" {
			if !valued {
				values = "0,1"
			}
			no, yes, _ := strings.Cut(values, ",")
			for _, v := range []struct {
				text string
				to   *[]byte
			}{{no, &c.no}, {yes, &c.yes}} {
				n, err := strconv.ParseFloat(strings.TrimSpace(v.text), 64)
				if err == nil {
					*v.to, err = number(d, n)
				}
				if err != nil {
					return stream.Errorf(stream.InvalidArgument, "controls",
						"has %q as a value of input %s: want two numbers of %s, FALSE,TRUE", values,
						s.inputs[c.in].Name, d)
				}
			}
		}
		c.input = stream.Tensor{Name: s.inputs[c.in].Name, Datatype: d}
		w.controls, w.controlInputs = append(w.controls, c), append(w.controlInputs, c.in)
	}
	if len(w.states)+len(w.controls) == len(s.inputs) {
		return stream.Errorf(stream.InvalidArgument, "controls",
			"and state name all inputs of the model: nothing is left for clients")
	}
	return nil
}

// describeControl sets the shape of a control's input, with one element in a row.
func (w *worker) describeControl(c *control, spec *stream.TensorSpec) error {
	for i, n := range spec.Shape {
		if spec.Shape[i] = max(n, 1); n > 1 || n == 0 {
			return stream.Errorf(stream.Unsupported, "controls", "input %s has the rows %v: want one element in each",
				spec.Name, spec.Shape)
		}
	}
	c.input.Shape = append([]int{1}, spec.Shape...)
	return nil
}

// setControls sets the controls' inputs for a run of the given rows.
func (w *worker) setControls(rows int) {
	for k := range w.controls {
		c := &w.controls[k]
		c.input.Shape[0] = rows
		c.input.Data = c.memory[:rows*c.input.Datatype.Size()]
		w.all[c.in] = c.input
	}
}

// setIDs writes the string ids into the inputs of a run of the given rows, after control has received all ids.
func (w *worker) setIDs(rows int) {
	for k := range w.controls {
		c := &w.controls[k]
		if c.texts == nil {
			continue
		}
		c.memory = c.memory[:0]
		for _, id := range c.texts[:rows] {
			c.memory = append(binary.LittleEndian.AppendUint32(c.memory, uint32(len(id))), id...)
		}
		w.all[c.in].Data = c.memory
	}
}

// control writes the controls of n rows, from row on. Without a request the rows are padding. last means that the
// rows end the request.
func (w *worker) control(r *stream.Request, row, n int, last bool) {
	if len(w.controls) == 0 {
		return
	}
	var start, end bool
	id, text := uint64(0), ""
	if r != nil {
		alone := r.Stream.Options().OneShot
		ends, _ := r.Params["sequence_end"].(bool)
		start, end = w.stateOf(r) == nil, alone || last && ends
		id, text = sequenceID(r)
	}
	for k := range w.controls {
		c := &w.controls[k]
		if c.texts != nil {
			for i := row; i < row+n; i++ {
				c.texts[i] = text
			}
			continue
		}
		size := c.input.Datatype.Size()
		from := c.no
		switch {
		case c.what == "id":
			var all [8]byte
			binary.LittleEndian.PutUint64(all[:], id)
			from = all[:size]
		case c.what == "start" && start, c.what == "end" && end, c.what == "ready" && r != nil:
			from = c.yes
		}
		for i := row; i < row+n; i++ {
			copy(c.input.Data[i*size:], from)
		}
	}
}

// sequenceID returns the id of a request's sequence, as a number or a text; 0 and "" without an id.
func sequenceID(r *stream.Request) (id uint64, text string) {
	switch v := r.Params["sequence_id"].(type) {
	case int64:
		return uint64(v), ""
	case uint64:
		return v, ""
	case string:
		return 0, v
	}
	return 0, ""
}

// checkID returns an error when an input for the id cannot hold the request's id.
func (w *worker) checkID(r *stream.Request) error {
	for k := range w.controls {
		c := &w.controls[k]
		if c.what != "id" {
			continue
		}
		id, text := sequenceID(r)
		bits := 8 * c.input.Datatype.Size()
		if strings.HasPrefix(string(c.input.Datatype), "INT") {
			bits--
		}
		switch {
		case c.texts != nil && strings.IndexByte(text, 0) >= 0:
			return stream.Errorf(stream.InvalidArgument, "parameters.sequence_id",
				"%.64q has a zero byte in it, which ends a string in the library: leave it out", text)
		case c.texts != nil && id == 0, c.texts == nil && text == "" && (bits >= 64 || id>>bits == 0):
		default:
			return stream.Errorf(stream.InvalidArgument, "parameters.sequence_id",
				"%.64v does not fit the model's input %s, which is %s", r.Params["sequence_id"], c.input.Name,
				c.input.Datatype)
		}
	}
	return nil
}
