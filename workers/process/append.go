package process

import (
	"encoding/hex"
	"math"
	"strconv"
	"unicode/utf8"

	"millrace/internal/oip"
	"millrace/stream"
)

// Append functions write the JSON texts of messages to a child.

func appendPlace(dst []byte, p dataLocation) []byte {
	if p.segment < 0 {
		dst = append(dst, `"at":`...)
	} else {
		dst = append(dst, `"segment":`...)
		dst = strconv.AppendInt(dst, int64(p.segment), 10)
		dst = append(dst, `,"offset":`...)
	}
	dst = strconv.AppendInt(dst, int64(p.offset), 10)
	dst = append(dst, `,"size":`...)
	return strconv.AppendInt(dst, int64(p.size), 10)
}

// appendTensor writes a tensor; rows > 0 are put in front of the shape.
func appendTensor(dst []byte, name string, datatype stream.Datatype, rows int, shape []int, p dataLocation) []byte {
	dst = append(dst, `{"name":`...)
	dst = oip.AppendString(dst, name)
	dst = append(dst, `,"datatype":"`...)
	dst = append(dst, datatype...)
	dst = append(dst, `","shape":[`...)
	if rows > 0 {
		dst = strconv.AppendInt(dst, int64(rows), 10)
		if len(shape) > 0 {
			dst = append(dst, ',')
		}
	}
	for i, n := range shape {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(n), 10)
	}
	dst = append(dst, `],`...)
	return append(appendPlace(dst, p), '}')
}

func appendMember(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	return oip.AppendString(dst, value)
}

func appendInt(dst []byte, name string, value int64) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	return strconv.AppendInt(dst, value, 10)
}

func appendParams(dst []byte, params stream.Params) []byte {
	dst = append(dst, '{')
	first := true
	for key, value := range params {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = oip.AppendString(dst, key)
		dst = append(dst, ':')
		switch v := value.(type) {
		case string:
			dst = oip.AppendString(dst, v)
		case int64:
			dst = strconv.AppendInt(dst, v, 10)
		case float64:
			if math.IsNaN(v) || math.IsInf(v, 0) {
				dst = append(dst, `null`...)
				continue
			}
			dst = strconv.AppendFloat(dst, v, 'g', -1, 64)
		case bool:
			dst = strconv.AppendBool(dst, v)
		default:
			dst = append(dst, `null`...)
		}
	}
	return append(dst, '}')
}

func appendCall(dst []byte, c *stream.Call) []byte {
	dst = append(dst, `,"call":{"endpoint":`...)
	dst = oip.AppendString(dst, c.Endpoint)
	dst = appendMember(dst, "method", c.Method)
	dst = appendMember(dst, "path", c.Path)
	dst = appendMember(dst, "query", c.Query)
	dst = appendMember(dst, "content_type", c.ContentType)
	dst = appendMember(dst, "user", c.User)
	if len(c.Header) > 0 {
		dst = append(dst, `,"header":{`...)
		first := true
		for name, value := range c.Header {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = oip.AppendString(dst, name)
			dst = append(dst, ':')
			dst = appendLatin(dst, value)
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// appendLatin writes the value of a header: bytes that are no valid UTF-8 are read as ISO 8859-1.
func appendLatin(dst []byte, s string) []byte {
	if utf8.ValidString(s) {
		return oip.AppendString(dst, s)
	}
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return oip.AppendString(dst, string(runes))
}

// appendTrace writes the trace context of a request in the form of the header traceparent.
func appendTrace(dst []byte, r *stream.Request) []byte {
	if r.Trace == (stream.TraceID{}) {
		return dst
	}
	dst = append(dst, `,"trace":"00-`...)
	dst = hex.AppendEncode(dst, r.Trace[:])
	dst = append(dst, '-')
	dst = hex.AppendEncode(dst, r.Span[:])
	if r.Decision == stream.Sampled || r.Decision == stream.Debug {
		return append(dst, `-01"`...)
	}
	return append(dst, `-00"`...)
}

// appendRequest writes the description of a request for the child, without the data.
func appendRequest(dst []byte, r *stream.Request, now stream.Instant) []byte {
	dst = append(dst, `{"rows":`...)
	dst = strconv.AppendInt(dst, int64(r.Rows), 10)
	if o := r.Stream.Options(); !o.OneShot {
		dst = appendInt(dst, "stream", int64(r.Stream.ID()))
		dst = appendInt(dst, "seq", int64(r.Seq))
		dst = appendMember(dst, "name", o.Name)
	}
	if r.Codec != stream.Tensors && r.Call == nil {
		dst = appendMember(dst, "codec", r.Codec.String())
	}
	if w, h := r.Width, r.Height; w > 0 && h > 0 {
		dst = appendInt(dst, "width", int64(w))
		dst = appendInt(dst, "height", int64(h))
	} else if r.SentWidth > 0 {
		dst = appendInt(dst, "width", int64(r.SentWidth))
		dst = appendInt(dst, "height", int64(r.SentHeight))
	}
	if r.MapX[0] != 0 {
		dst = append(dst, `,"map":[`...)
		for i, v := range [4]float64{r.MapX[0], r.MapX[1], r.MapY[0], r.MapY[1]} {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendFloat(dst, v, 'g', -1, 64)
		}
		dst = append(dst, ']')
	}
	if r.Deadline != 0 {
		dst = appendInt(dst, "deadline_ms", max(r.Deadline.Sub(now).Milliseconds(), 0))
	}
	if len(r.Params) > 0 {
		dst = append(dst, `,"parameters":`...)
		dst = appendParams(dst, r.Params)
	}
	if r.Call != nil {
		dst = appendCall(dst, r.Call)
		dst = appendMember(dst, "user", r.Call.User)
	} else {
		dst = appendMember(dst, "user", r.Account.Name())
	}
	return appendTrace(dst, r)
}
