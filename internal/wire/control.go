package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Bounds of control messages.
const (
	MaxText       = 64 << 10 // bytes of a client's text message
	MaxServerText = 64 << 20 // of a server's, whose results may hold tensors
	MaxDepth      = 32       // arrays and objects that are open at once
	MaxMS         = 3600_000 // of max_age_ms and deadline_ms
	MaxSide       = 65535    // of width and height
	MaxWindow     = 1024     // frames
	MaxToken      = 1024     // bytes of a session or token

	minFPS, maxFPS = 0.001, 1e6
)

// Message is a control message: a pointer to one of the structs of this
// package. An optional field that is 0, "" or nil is not sent.
type Message interface {
	// Type is the message's discriminator.
	Type() string
	read(value) error
}

// kind makes an empty message of one type.
type kind func() Message

func kindOf[T any, P interface {
	*T
	Message
}]() kind {
	return func() Message { return P(new(T)) }
}

// kinds are the messages that one side sends.
type kinds map[string]kind

func kindsOf(all ...kind) kinds {
	ks := kinds{}
	for _, k := range all {
		ks[k().Type()] = k
	}
	return ks
}

var fromClient = kindsOf(
	kindOf[Open](), kindOf[Update](), kindOf[Pause](), kindOf[Resume](), kindOf[Flush](), kindOf[Close](),
	kindOf[Ping](), kindOf[Attach](),
)

var fromServer = kindsOf(
	kindOf[Result](), kindOf[Drop](), kindOf[Credit](), kindOf[ErrorMessage](), kindOf[Ready](), kindOf[Opened](),
	kindOf[Advise](), kindOf[Stats](), kindOf[GoAway](), kindOf[Pong](), kindOf[Closed](), kindOf[Attached](),
)

// ParseControl reads a text message that from has sent. Fields that are not
// known are ignored; an unknown type, a field with a wrong value, one that is
// null and one that comes twice are errors. The error is an *Error that names
// the message and the field, with its SID when the message had one.
func ParseControl(text []byte, from Side) (Message, error) {
	known, most := fromClient, MaxText
	if from == Server {
		known, most = fromServer, MaxServerText
	}
	v, fault := checkText(text, most)
	if fault != nil {
		return nil, fault
	}
	m, err := known.parse(v)
	if err != nil {
		return nil, attributed(err, v)
	}
	return m, nil
}

func (k kinds) parse(v value) (Message, error) {
	var name string
	if err := v.object(must("type", words(&name, 1, MaxName))); err != nil {
		return nil, err
	}
	if empty, ok := k[name]; ok {
		m := empty()
		return m, within(name, m.read(v))
	}
	names := slices.Sorted(maps.Keys(k))
	return nil, unsupported(ErrType, "type", fmt.Sprintf("%q is unknown: want one of %s", clip(name), strings.Join(names, ", ")))
}

// attributed adds the stream that v names to err, if it can be read.
func attributed(err error, v value) error {
	var sid uint32
	e, ok := err.(*Error)
	if ok && v.object(must("sid", sidInto(&sid))) == nil {
		e.SID = &sid
	}
	return err
}

// AppendControl appends m. The error is that of a float that is not finite, or
// of a parameter of another type than Params allow. Results, drops, credits and
// errors allocate nothing; their own functions are AppendResult, AppendDrop,
// AppendCredit and AppendError.
func AppendControl(dst []byte, m Message) ([]byte, error) {
	switch m := m.(type) {
	case *Result:
		return AppendResult(dst, m), nil
	case *Drop:
		return AppendDrop(dst, m), nil
	case *Credit:
		return AppendCredit(dst, m), nil
	case *ErrorMessage:
		return AppendError(dst, m), nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		return dst, fmt.Errorf("%s: %w", m.Type(), err)
	}
	dst = begin(dst, m.Type())
	dst = append(dst, ',')
	return append(dst, bytes.TrimRight(b.Bytes(), "\n")[1:]...), nil
}

func begin(dst []byte, name string) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, name...)
	return append(dst, '"')
}
