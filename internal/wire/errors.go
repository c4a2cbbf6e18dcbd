package wire

import (
	"errors"
	"strings"
)

// Error says what is wrong with a message.
type Error struct {
	// Code is the text for the code of an error message: one of stream.Code's,
	// or "unsupported_version".
	Code string
	// Field is the part at fault as a path ("ext.roi", "open.policy.mode"), or
	// "" for the message as a whole.
	Field string
	// Msg says what was found and what is expected.
	Msg string
	// Fatal says that the sender does not speak this protocol: the connection
	// is to be closed with CloseMalformed. Otherwise one message is lost.
	Fatal bool
	// SID and Seq are the stream and the frame that the message named, where
	// that much could be read.
	SID *uint32
	Seq *uint64
	// Err is the rule that was broken, one of the variables below.
	Err error
}

// The rules of media messages.
var (
	ErrShort     = errors.New("the message is shorter than its header")
	ErrVersion   = errors.New("another version of the header")
	ErrKind      = errors.New("unknown kind")
	ErrCodec     = errors.New("unknown codec")
	ErrFlags     = errors.New("unknown flags")
	ErrPairing   = errors.New("kind and codec do not go together")
	ErrDirection = errors.New("the kind is not sent by this side")
	ErrExtLen    = errors.New("the extension is longer than the message")
	ErrTLVLen    = errors.New("an extension entry is longer than the extension")
	ErrTLVTwice  = errors.New("an extension entry comes twice")
	ErrTLVSize   = errors.New("an extension entry has the wrong size")
	ErrTensors   = errors.New("the tensors' JSON is longer than the payload")
)

// The rules of control messages.
var (
	ErrTextSize  = errors.New("the text is too long")
	ErrTextDepth = errors.New("the text is nested too deep")
	ErrSyntax    = errors.New("the text is no JSON object")
	ErrType      = errors.New("unknown type of message")
	ErrMissing   = errors.New("a field is missing")
	ErrTwice     = errors.New("a field comes twice")
	ErrValue     = errors.New("a field has a wrong value")
)

// Codes of errors, as stream.Code words them.
const (
	codeInvalid     = "invalid_argument"
	codeUnsupported = "unsupported"
	codeTooLarge    = "too_large"
	codeVersion     = "unsupported_version"
)

// Error returns "field: message".
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Msg
	}
	return e.Field + ": " + e.Msg
}

// Unwrap returns the rule that was broken.
func (e *Error) Unwrap() error { return e.Err }

// Message returns the error message that answers the message at fault.
func (e *Error) Message() ErrorMessage {
	return ErrorMessage{Code: e.Code, Message: e.Error(), SID: e.SID, Seq: e.Seq, Fatal: e.Fatal}
}

func invalid(rule error, field, msg string) *Error {
	return &Error{Code: codeInvalid, Field: field, Msg: msg, Err: rule}
}

func unsupported(rule error, field, msg string) *Error {
	return &Error{Code: codeUnsupported, Field: field, Msg: msg, Err: rule}
}

func fatal(rule error, code, field, msg string) *Error {
	return &Error{Code: code, Field: field, Msg: msg, Fatal: true, Err: rule}
}

// within puts step before the field of err, which is nil or an *Error.
func within(step string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		if e.Field != "" && e.Field[0] != '[' {
			step += "."
		}
		e.Field = step + e.Field
	}
	return err
}

// clip keeps what a peer sent from filling an error's text.
func clip(s string) string {
	const most = 40
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}
