package tasks

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
)

// AppendJSON appends the task as encoding/json would write the task, in a fifth of the time: each task is written five
// times from the submission to the result.
func (t *Task) AppendJSON(b []byte) []byte { return append(t.appendFields(append(b, '{')), '}') }

// appendFields appends the fields without braces.
func (t *Task) appendFields(b []byte) []byte {
	b = appendText(append(b, `"id":`...), t.ID)
	b = appendText(append(b, `,"model":`...), t.Model)
	b = appendMember(b, `,"version":`, t.Version)
	b = appendMember(b, `,"kind":`, t.Kind)
	b = appendMember(b, `,"annotate":`, t.Annotate)
	b = appendMember(b, `,"owner":`, t.Owner)
	b = appendMember(b, `,"key":`, t.Key)
	b = appendNumber(b, `,"priority":`, int64(t.Priority))
	b = appendMember(b, `,"traceparent":`, t.Trace)
	b = appendText(append(b, `,"state":`...), string(t.State))
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(t.Attempt), 10)
	b = strconv.AppendInt(append(b, `,"attempts":`...), int64(t.Attempts), 10)
	b = strconv.AppendInt(append(b, `,"last_attempt":`...), int64(t.LastAttempt), 10)
	b = appendMember(b, `,"consumer":`, t.Consumer)
	b = appendMember(b, `,"claimant":`, t.Claimant)
	b = appendTime(append(b, `,"created":`...), t.Created)
	for _, m := range []struct {
		name string
		at   time.Time
	}{
		{`,"queued":`, t.Queued}, {`,"not_before":`, t.NotBefore}, {`,"expires":`, t.Expires},
		{`,"started":`, t.Started}, {`,"ended":`, t.Ended},
	} {
		if !m.at.IsZero() {
			b = appendTime(append(b, m.name...), m.at)
		}
	}
	b = appendNumber(b, `,"retention":`, int64(t.Retention))
	if t.Webhook != nil {
		b = appendOther(append(b, `,"webhook":`...), t.Webhook)
	}
	b = appendFile(append(b, `,"input":`...), &t.Input)
	if t.Result != nil {
		b = appendFile(append(b, `,"result":`...), t.Result)
	}
	if t.Error != nil {
		b = appendOther(append(b, `,"error":`...), t.Error)
	}
	if t.Progress != (Progress{}) {
		b = appendOther(append(b, `,"progress":`...), t.Progress)
	}
	return appendNumber(b, `,"log_bytes":`, t.LogBytes)
}

func appendFile(b []byte, f *File) []byte {
	b = strconv.AppendInt(append(b, `{"size":`...), f.Size, 10)
	b = appendText(append(b, `,"sha256":`...), f.SHA256)
	b = appendMember(b, `,"type":`, f.Type)
	b = appendMember(b, `,"name":`, f.Name)
	b = appendMember(b, `,"head":`, f.Head)
	return append(b, '}')
}

// appendMember appends a member, unless the text is empty; appendNumber, unless the number is 0.
func appendMember(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	return appendText(append(b, name...), text)
}

func appendNumber(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(b, name...), n, 10)
}

func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return appendOther(b, text)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

func appendTime(b []byte, at time.Time) []byte {
	if year := at.Year(); year < 0 || year > 9999 || at.Location() != time.UTC {
		return appendOther(b, at)
	}
	return append(at.AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
}

// appendBytes appends a member with bytes, unless there are none.
func appendBytes(b []byte, name string, of []byte) []byte {
	if len(of) == 0 {
		return b
	}
	return append(base64.StdEncoding.AppendEncode(append(append(b, name...), '"'), of), '"')
}

// appendOther appends what is rare.
func appendOther(b []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the values are texts, numbers and times
	}
	return append(b, text...)
}
