package plain

import (
	"strconv"

	"millrace/ingest/frames"
	"millrace/ingest/ws/conn"
	"millrace/ingest/ws/query"
	"millrace/internal/oip"
	"millrace/stream"
)

// plainResult encodes a result of a frame; from is not nil for a frame of a pulled video.
func plainResult(e *conn.Encoder, r *stream.Result, q *query.Options,
	from *videoInfo) (msg []byte, isBinary bool, err error) {
	form := q.Outputs
	if form == conn.AsBinary {
		msg, err = binaryResult(e, r, q.Traced, from)
		return msg, true, err
	}
	dst := append(appendSeq(e.Text[:0], callID{}, r.Seq), `,"model":`...)
	dst = oip.AppendString(dst, r.Model.Name)
	if r.Partial {
		dst = append(dst, `,"partial":true`...)
	}
	if form == conn.AsJSON {
		if dst, err = e.Members(append(dst, ','), r); err != nil {
			return nil, false, err
		}
	}
	dst = append(dst, `,"timing":{`...)
	dst = appendTiming(dst, &r.Timing)
	dst = append(dst, '}')
	var source videoInfo
	if from != nil {
		source = *from
	}
	for _, f := range [...]struct {
		key string
		n   int
	}{
		{`,"width":`, r.Width}, {`,"height":`, r.Height},
		{`,"source_width":`, source.Width}, {`,"source_height":`, source.Height},
		{`,"batch":`, r.BatchSize},
	} {
		if f.n > 0 {
			dst = strconv.AppendInt(append(dst, f.key...), int64(f.n), 10)
		}
	}
	if from != nil {
		dst = strconv.AppendInt(append(dst, `,"pts_us":`...), r.CaptureUS, 10)
	}
	if q.Traced {
		dst = frames.AppendTraceresponse(append(dst, `,"traceresponse":"`...), r)
		dst = append(dst, '"')
	}
	e.Text = append(dst, '}')
	return e.Text, false, nil
}

func binaryResult(e *conn.Encoder, r *stream.Result, traced bool, from *videoInfo) ([]byte, error) {
	e.Begin(r)
	if traced {
		e.Trace(r)
	}
	if from != nil && from.Width > 0 {
		e.Int("source_width", int64(from.Width))
		e.Int("source_height", int64(from.Height))
	}
	return e.Binary(r, 0)
}

func appendTiming(dst []byte, t *stream.Timing) []byte {
	first := true
	conn.EachStep(t, func(name string, us int64) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(append(dst, '"'), name...), `":`...)
		dst = strconv.AppendInt(dst, us, 10)
	})
	return dst
}
