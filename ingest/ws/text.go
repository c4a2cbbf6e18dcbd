package ws

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"

	"millrace/stream"
)

// The control messages of a client in millrace.v1. Members that are not known
// are ignored, so that newer clients can speak to older servers.
type (
	openText struct {
		SID            uint32
		Model, Version string
		Codec          string
		Width, Height  uint16
		Policy         policyText
		Outputs        string
		Params         map[string]any
	}
	updateText struct {
		SID    uint32
		Policy policyText
	}
	pauseText  struct{ SID uint32 }
	resumeText struct{ SID uint32 }
	flushText  struct{ SID uint32 }
	closeText  struct{ SID uint32 }
	pingText   struct{ T any }
	attachText struct {
		Token   string
		Streams []struct {
			SID     uint32
			LastSeq *uint64 `json:"last_seq"`
		}
	}
	policyText struct {
		Mode       string
		MaxAgeMS   uint32  `json:"max_age_ms"`
		DeadlineMS uint32  `json:"deadline_ms"`
		MaxFPS     float64 `json:"max_fps"`
		Window     uint16
	}
)

const controlTypes = "open, update, pause, resume, flush, close, ping, attach"

// parseControl reads a control message. The message comes back beside an error
// about one of its members too, when its stream is known.
func parseControl(text []byte) (m any, err error) {
	bad := func(field, format string, args ...any) error {
		return stream.Errorf(stream.InvalidArgument, field, format, args...)
	}
	var head struct {
		Type *string
		SID  *uint32
	}
	if t := bytes.TrimLeft(text, " \t\r\n"); len(t) == 0 || t[0] != '{' {
		return nil, bad("", `a text message is a JSON object with a "type": %s; frames are binary messages`, controlTypes)
	}
	if err := strict(text, &head); err != nil {
		return nil, bad("", "the text message is not understood: %s", clip(err.Error()))
	}
	if head.Type == nil {
		return nil, bad("type", "is missing: want one of %s", controlTypes)
	}
	kind := *head.Type
	switch kind {
	case "open":
		m = &openText{}
	case "update":
		m = &updateText{}
	case "pause":
		m = &pauseText{}
	case "resume":
		m = &resumeText{}
	case "flush":
		m = &flushText{}
	case "close":
		m = &closeText{}
	case "ping":
		m = &pingText{}
	case "attach":
		m = &attachText{}
	default:
		return nil, bad("type", "%q is not known: want one of %s", clip(kind), controlTypes)
	}
	if err := strict(text, m); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return withSID(m, head.SID), bad(kind+"."+clip(wrong.Field), "is %s: want %s", clip(wrong.Value), wrong.Type)
		}
		return withSID(m, head.SID), bad(kind, "%s", clip(err.Error()))
	}
	if _, needs := sidOf(m); needs && head.SID == nil {
		return nil, bad(kind+".sid", "is missing")
	}
	if o, ok := m.(*openText); ok {
		if o.Params, err = plain(o.Params); err != nil {
			return m, bad("open.params", "%w", err)
		}
	}
	return m, nil
}

// withSID keeps a message that was half read if it is known whose it is.
func withSID(m any, sid *uint32) any {
	if sid == nil {
		return nil
	}
	return &closeText{SID: *sid}
}

// strict decodes one JSON object, and nothing behind it.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is more behind the JSON object")
	}
	return nil
}

// plain turns the values of parameters into those that a model can get.
func plain(p map[string]any) (map[string]any, error) {
	for k, v := range p {
		switch v := v.(type) {
		case string, bool:
		case json.Number:
			if n, err := v.Int64(); err == nil {
				p[k] = n
			} else if f, err := v.Float64(); err == nil && !math.IsInf(f, 0) {
				p[k] = f
			} else {
				return nil, errors.New(clip(k) + " is a number out of range")
			}
		default:
			return nil, errors.New(clip(k) + " is neither a string nor a number nor true or false")
		}
	}
	return p, nil
}

// sidOf returns the stream that a message is about, if it is about one.
func sidOf(m any) (uint32, bool) {
	switch m := m.(type) {
	case *openText:
		return m.SID, true
	case *updateText:
		return m.SID, true
	case *pauseText:
		return m.SID, true
	case *resumeText:
		return m.SID, true
	case *flushText:
		return m.SID, true
	case *closeText:
		return m.SID, true
	}
	return 0, false
}
