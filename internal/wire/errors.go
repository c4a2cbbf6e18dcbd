package wire

import (
	"errors"
	"strings"

	"millrace/stream/coded"
)

// fault is the coded error in an Error.
type fault = coded.Error

// Error is an error of a message. Field is the path of the wrong part ("ext.roi", "open.policy.mode"), or "" for the
// whole message. The cause is the violated rule, one of the variables below.
type Error struct {
	fault
	// Fatal means that the sender does not speak this protocol: the connection must be closed with CloseMalformed.
	// Otherwise only this message is lost.
	Fatal bool
	// SID and Seq are the stream and the frame of the message, if readable.
	SID *uint32
	Seq *uint64
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
	ErrTLVTwice  = errors.New("an extension entry is repeated")
	ErrTLVSize   = errors.New("an extension entry has the wrong size")
	ErrTensors   = errors.New("the tensors' JSON is longer than the payload")
)

// The rules of control messages.
var (
	ErrTextSize  = errors.New("the text is too long")
	ErrTextDepth = errors.New("the text is nested too deeply")
	ErrSyntax    = errors.New("the text is not a JSON object")
	ErrType      = errors.New("unknown type of message")
	ErrMissing   = errors.New("a field is missing")
	ErrTwice     = errors.New("a field is repeated")
	ErrUnknown   = errors.New("a field is unknown")
	ErrValue     = errors.New("a field has a wrong value")
)

// The codes of this package's errors.
const (
	codeInvalid     = coded.InvalidArgument
	codeUnsupported = coded.Unsupported
	codeTooLarge    = coded.TooLarge
	// codeVersion exists in this protocol only.
	codeVersion coded.Code = "unsupported_version"
)

// Unwrap returns the coded error.
func (e *Error) Unwrap() error { return &e.fault }

// Message returns the error message for replying to the wrong message.
func (e *Error) Message() ErrorMessage {
	return ErrorMessage{Code: string(e.Code), Message: e.Error(), SID: e.SID, Seq: e.Seq, Fatal: e.Fatal}
}

func invalid(rule error, field, msg string) *Error {
	return &Error{fault: fault{Code: codeInvalid, Field: field, Msg: msg, Err: rule}}
}

func unsupported(rule error, field, msg string) *Error {
	return &Error{fault: fault{Code: codeUnsupported, Field: field, Msg: msg, Err: rule}}
}

func tooLarge(rule error, field, msg string) *Error {
	return &Error{fault: fault{Code: codeTooLarge, Field: field, Msg: msg, Err: rule}}
}

func fatal(rule error, code coded.Code, field, msg string) *Error {
	return &Error{fault: fault{Code: code, Field: field, Msg: msg, Err: rule}, Fatal: true}
}

// prefixField adds step before the field of err, which is nil or an *Error.
func prefixField(step string, err error) error {
	if err == nil {
		return nil // before errors.As makes e escape
	}
	var e *Error
	if errors.As(err, &e) {
		if e.Field != "" && e.Field[0] != '[' {
			step += "."
		}
		e.Field = step + e.Field
	}
	return err
}

// clip truncates text of the peer in an error.
func clip(s string) string {
	const most = 40
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}
