package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Bounds of control messages.
const (
	MaxText       = 64 << 10 // bytes of a client's text message
	MaxServerText = 64 << 20 // of a server's text message, possibly with tensors
	MaxDepth      = 32       // nesting of arrays and objects
	MaxMS         = 3600_000 // of max_age_ms and deadline_ms
	MaxSide       = 65535    // of width and height
	MaxWindow     = 1024     // frames
	MaxToken      = 1024     // bytes of a session or token
)

// Message is a control message: a pointer to one of the structs of this package. An optional field that is 0, "" or
// nil is not sent.
type Message interface {
	// Type is the message's discriminator.
	Type() string
}

// kind is one type of message.
type kind struct {
	empty  func() Message
	reader *structReader
}

// kinds has the messages of one side, by their types.
type kinds map[string]kind

func kindsOf(all ...Message) kinds {
	ks := kinds{}
	for _, m := range all {
		t := reflect.TypeOf(m).Elem()
		ks[m.Type()] = kind{func() Message { return reflect.New(t).Interface().(Message) }, readerOf(t)}
	}
	return ks
}

var fromClient = kindsOf(new(Open), new(Update), new(Pause), new(Resume), new(Flush), new(Close), new(Ping),
	new(Attach))

var fromServer = kindsOf(new(Result), new(Drop), new(Credit), new(ErrorMessage), new(Ready), new(Opened), new(Advise),
	new(Stats),
	new(GoAway), new(Pong), new(Closed), new(Attached))

// envelope has the field read before the type of a message is known; address has the stream of a message with an
// error.
type (
	envelope struct {
		Type string `json:"type" want:"must,word"`
	}
	address struct {
		SID uint32 `json:"sid" want:"must"`
	}
)

var envelopeReader, addressReader = readerOf(reflect.TypeFor[envelope]()), readerOf(reflect.TypeFor[address]())

// ParseControl reads a text message sent by from. Unknown fields are ignored. An unknown type, a wrong value of a
// field, a null field and a repeated field are errors. The error is an *Error with the message's type and the field,
// and with the message's SID if present.
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
	var e envelope
	if err := envelopeReader.read(v, reflect.ValueOf(&e).Elem()); err != nil {
		return nil, err
	}
	kind, ok := k[e.Type]
	if !ok {
		names := slices.Sorted(maps.Keys(k))
		return nil, unsupported(ErrType, "type", fmt.Sprintf("%q is unknown: want one of %s", clip(e.Type),
			strings.Join(names, ", ")))
	}
	m := kind.empty()
	return m, prefixField(e.Type, kind.reader.read(v, reflect.ValueOf(m).Elem()))
}

// attributed adds the stream of v to err, if the stream can be read.
func attributed(err error, v value) error {
	var a address
	e, ok := err.(*Error)
	if ok && addressReader.read(v, reflect.ValueOf(&a).Elem()) == nil {
		e.SID = &a.SID
	}
	return err
}

// AppendControl appends m. A float that is not finite, and a parameter type not allowed by Params, are errors. For
// results, drops, credits and errors AppendControl does not allocate; their own functions are AppendResult,
// AppendDrop, AppendCredit and AppendError.
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
