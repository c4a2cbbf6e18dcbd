package clips

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strconv"
	"time"

	"millrace/ingest/frames"
	"millrace/internal/oip"
	"millrace/internal/overlay"
	"millrace/stream"
	"millrace/stream/rules"
)

// EventsOf returns the events in the outputs of a result, and the text of each, copied.
func EventsOf(r *stream.Result) iter.Seq2[*rules.Event, json.RawMessage] {
	return func(yield func(*rules.Event, json.RawMessage) bool) {
		if r.Outcome != stream.Answered || !r.Model.AppliesRules {
			return
		}
		for i := range r.Outputs {
			o := &r.Outputs[i]
			if o.Name != rules.Output || o.Datatype != stream.Bytes {
				continue
			}
			for data := o.Data; len(data) >= 4; {
				n := int(binary.LittleEndian.Uint32(data))
				if n > len(data)-4 {
					break
				}
				var v rules.Event
				text := append(json.RawMessage(nil), data[4:4+n]...)
				data = data[4+n:]
				if json.Unmarshal(text, &v) != nil { // an output of this name from elsewhere
					continue
				}
				if !yield(&v, text) {
					return
				}
			}
		}
	}
}

// IncidentOf returns an event for Recorder.Events.
func IncidentOf(v *rules.Event, text json.RawMessage) Incident {
	return Incident{Text: text, ID: v.ID, Type: string(v.Type), At: time.Duration(v.End) * time.Microsecond}
}

// ObjectLine returns the end of a line about the boxes of a result; nil without boxes. See Recorder.Result.
func ObjectLine(r *stream.Result) []byte {
	all, err := overlay.ReadResult(frames.Drawable(r))
	if err != nil || len(all.Boxes) == 0 {
		return nil
	}
	line := fmt.Appendf(nil, `"width":%d,"height":%d,"objects":[`, r.Width, r.Height)
	for i, b := range all.Boxes {
		if i > 0 {
			line = append(line, ',')
		}
		line = append(line, `{"box":[`...)
		for k, v := range []float64{b.X1, b.Y1, b.X2, b.Y2} {
			if k > 0 {
				line = append(line, ',')
			}
			line = strconv.AppendFloat(line, math.Round(v*10)/10, 'f', -1, 64)
		}
		line = append(line, ']')
		if b.ID != 0 {
			line = strconv.AppendInt(append(line, `,"track":`...), b.ID, 10)
		}
		if b.Label != "" {
			line = oip.AppendString(append(line, `,"class":`...), b.Label)
		} else if b.Number >= 0 {
			line = strconv.AppendInt(append(line, `,"class":`...), int64(b.Number), 10)
		}
		if !math.IsNaN(b.Score) {
			line = strconv.AppendFloat(append(line, `,"score":`...), math.Round(b.Score*1000)/1000, 'f', -1, 64)
		}
		line = append(line, '}')
	}
	return append(line, ']', '}')
}
