package wire

import "reflect"

// PullOrder is a text message of a client in plain mode: pull the named video, or stop pulling.
type PullOrder struct {
	URL   string `json:"url"`
	Model string `json:"model" want:"name"`
	Stop  bool   `json:"stop"`
}

// Call is a text message of a client at /models/infer: an Open Inference Protocol request with the name of the model;
// its only input holds the address of a video.
type Call struct {
	Model  string      `json:"model" want:"name"`
	ID     CallID      `json:"id"`
	Inputs []CallInput `json:"inputs"`

	Parameters *CallParameters `json:"parameters"`
}

// CallParameters are the parameters used from a Call or its input.
type CallParameters struct {
	Key   CallID  `json:"key"`   // of a call; repeated by each reply
	Count *uint64 `json:"count"` // of an input; the video ends after this many frames
}

// CallInput is an input of a Call.
type CallInput struct {
	Data []string `json:"data"`

	Parameters *CallParameters `json:"parameters"`
}

// CallID is the id of a call. The id is text; a number is kept as written, and null means no id.
type CallID string

func (id *CallID) read(v value) error {
	switch v[0] {
	case '"':
		*id = CallID(v.unquote())
	case '{', '[', 't', 'f':
		return v.wrong("a string or a number")
	case 'n':
	default:
		*id = CallID(v)
	}
	return nil
}

var (
	orderReader  = readerOf(reflect.TypeFor[PullOrder]())
	callReader   = readerOf(reflect.TypeFor[Call]())
	callIDReader = readerOf(reflect.TypeFor[struct {
		ID CallID `json:"id"`
	}]())
)

func init() { orderReader.complete = true }

// ParsePullOrder reads a text message of plain mode into o. ParsePullOrder is as strict as ParseControl, and refuses
// unknown members as well.
func ParsePullOrder(text []byte, o *PullOrder) error { return parseInto(text, o, orderReader) }

// ParseCall reads a call into c, as strictly as ParseControl. After an error c has the id, if readable.
func ParseCall(text []byte, c *Call) error {
	err := parseInto(text, c, callReader)
	if err != nil {
		var id struct {
			ID CallID `json:"id"`
		}
		_ = parseInto(text, &id, callIDReader)
		c.ID = id.ID
	}
	return err
}

// parseInto reads a client's text message into the struct pointed to by to.
func parseInto(text []byte, to any, r *structReader) error {
	v, fault := checkText(text, MaxText)
	if fault != nil {
		return fault
	}
	return r.read(v, reflect.ValueOf(to).Elem())
}
