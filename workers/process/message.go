package process

import (
	"encoding/json"
	"fmt"

	"millrace/stream"
	"millrace/stream/buf"
)

// message is one message of a child. The memory is reused: a message is valid until returned to the reader.
type message struct {
	kind kind
	text []byte   // the JSON text
	data *buf.Buf // the bytes after the text; nil = none
	lost int      // bytes after the text, omitted for lack of memory

	id      uint64 // of the batch
	request int    // of a part
	decode  decode // of a message decode
	outputs []tensor
	dense   bool // a result has outputs of all rows
	reply   *stream.Reply
	answers []answer // of a result, one for each request
	each    bool     // a result has answers
	spans   []span
	memory  int64
	ends    string // of a result: why the program ends its process after it; "" = it does not

	tensors []tensor // memory of the outputs of answers
	dims    []int    // memory of shapes
}

type kind uint8

const (
	unknown kind = iota
	isModel
	isReady
	isFailed
	isLog
	isChecked
	isBegun
	isPart
	isResult
	isDecode
)

var kinds = map[string]kind{
	"model": isModel, "ready": isReady, "failed": isFailed, "log": isLog, "checked": isChecked, "begun": isBegun,
	"part": isPart, "result": isResult, "decode": isDecode,
}

// dataLocation is where data are: in shared memory, or in the bytes after the JSON text.
type dataLocation struct {
	segment int // -1 = in the bytes
	offset  int
	size    int
}

// tensor is an output of a child.
type tensor struct {
	name     string
	datatype stream.Datatype
	from, to int // the shape in message.dims; the element before is 1
	dataLocation
}

// answer is the part of a result for one request.
type answer struct {
	from, to int // the outputs in message.tensors
	outputs  bool
	reply    *stream.Reply
	params   stream.Params
	failure  *failure
	drop     stream.Reason
}

// failure is an error of a child.
type failure struct {
	code      stream.Code
	field     string
	message   string
	traceback string
	status    int
}

// span is a part of the time of a batch.
type span struct {
	name       string
	start, end int // microseconds after the batch began
	request    int // -1 = the whole batch
}

// reset makes m empty for the next message.
func (m *message) reset() {
	m.data.Release()
	clear(m.answers)
	*m = message{
		text: m.text[:0], outputs: m.outputs[:0], answers: m.answers[:0], spans: m.spans[:0],
		tensors: m.tensors[:0], dims: m.dims[:0],
	}
}

// parse reads the JSON text of a message. The readers of rare messages decode the text themselves: parse only reads
// the type.
func (m *message) parse(s *scanner) error {
	s.buf, s.pos = m.text, 0
	// The type decides the meaning of the other members, and may come last.
	if err := m.findKind(s); err != nil {
		return err
	}
	if m.kind == isDecode {
		return m.readDecode()
	}
	if m.kind != isPart && m.kind != isResult {
		return nil
	}
	s.pos = 0
	hasID, hasRequest := false, false
	err := s.object(func(key []byte) (err error) {
		switch string(key) {
		case "type":
			_, err = s.text()
		case "id":
			var n int
			n, err = s.count()
			m.id, hasID = uint64(n), true
		case "outputs":
			if s.null() {
				return nil
			}
			m.dense = true
			err = s.array(func() error { return m.readTensor(s, &m.outputs) })
		default:
			if m.kind == isPart {
				switch string(key) {
				case "request":
					m.request, err = s.count()
					hasRequest = true
				case "reply":
					m.reply, err = readReply(s)
				default:
					return s.fail("%q is not a member of part", key)
				}
				return err
			}
			err = m.resultMember(s, key)
		}
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("in %s: %w", m.name(), err)
	case !hasID:
		return fmt.Errorf("%s has no id", m.name())
	case m.kind == isPart && !hasRequest:
		return fmt.Errorf("part has no request")
	}
	return s.end()
}

func (m *message) name() string {
	for name, k := range kinds {
		if k == m.kind {
			return name
		}
	}
	return "message"
}

// findKind sets the message's kind. Unless the type is the first member, findKind decodes the text.
func (m *message) findKind(s *scanner) error {
	var name []byte
	if s.expect('{') == nil {
		if key, err := s.text(); err == nil && string(key) == "type" && s.expect(':') == nil {
			name, _ = s.text()
		}
	}
	if name == nil {
		var head struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(m.text, &head); err != nil {
			return fmt.Errorf("a message is not a JSON object: %w: %.80q", err, m.text)
		}
		name = []byte(head.Type)
	}
	if m.kind = kinds[string(name)]; m.kind == unknown {
		return fmt.Errorf("a message has the type %.80q, which the protocol does not have", name)
	}
	return nil
}

func (m *message) resultMember(s *scanner, key []byte) (err error) {
	switch string(key) {
	case "requests":
		if s.null() {
			return nil
		}
		m.each = true
		return s.array(func() error { return m.readAnswer(s) })
	case "spans":
		return s.array(func() error { return m.readSpan(s) })
	case "memory":
		var n int
		n, err = s.count()
		m.memory = int64(n)
		return err
	case "ends":
		text, err := s.text()
		m.ends = string(text)
		return err
	}
	return s.fail("%q is not a member of result", key)
}

func (m *message) readTensor(s *scanner, to *[]tensor) error {
	t := tensor{dataLocation: dataLocation{segment: -1, size: -1}}
	hasAt := false
	err := s.object(func(key []byte) (err error) {
		switch string(key) {
		case "name":
			t.name, err = s.name()
		case "datatype":
			var name string
			name, err = s.name()
			if t.datatype = stream.Datatype(name); err == nil && !t.datatype.Valid() {
				err = s.fail("%.40q is not a datatype", name)
			}
		case "shape":
			m.dims = append(m.dims, 1)
			t.from = len(m.dims)
			err = s.array(func() error {
				n, err := s.count()
				m.dims = append(m.dims, n)
				return err
			})
			t.to = len(m.dims)
		case "segment":
			t.segment, err = s.count()
		case "offset", "at":
			hasAt = hasAt || string(key) == "at"
			t.offset, err = s.count()
		case "size":
			t.size, err = s.count()
		default:
			err = s.fail("%q is not a member of a tensor", key)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case t.datatype == "" || t.from == 0 || t.size < 0:
		return s.fail("output %.80q lacks its datatype, shape or size", t.name)
	case hasAt == (t.segment >= 0):
		return s.fail("output %.80q has neither a segment nor a place in the bytes, or both", t.name)
	}
	*to = append(*to, t)
	return nil
}

func (m *message) readAnswer(s *scanner) error {
	a := answer{from: len(m.tensors)}
	err := s.object(func(key []byte) (err error) {
		switch string(key) {
		case "outputs":
			if s.null() {
				return nil
			}
			a.outputs = true
			err = s.array(func() error { return m.readTensor(s, &m.tensors) })
		case "reply":
			a.reply, err = readReply(s)
		case "parameters":
			if s.null() {
				return nil
			}
			err = s.object(func(key []byte) error {
				name := string(key)
				v, err := s.value()
				if a.params == nil {
					a.params = stream.Params{}
				}
				a.params[name] = v
				return err
			})
		case "error":
			if s.null() {
				return nil
			}
			a.failure, err = readFailure(s)
		case "drop":
			a.drop, err = readDrop(s)
		default:
			err = s.fail("%q is not a member of a request's result", key)
		}
		return err
	})
	a.to = len(m.tensors)
	m.answers = append(m.answers, a)
	return err
}

// readDrop reads why a request is dropped.
func readDrop(s *scanner) (stream.Reason, error) {
	if c := s.peek(); c == 't' || c == 'f' {
		drop, err := s.boolean()
		if !drop {
			return "", err
		}
		return stream.Closed, nil
	}
	name, err := s.name()
	for _, r := range stream.Reasons {
		if string(r) == name {
			return r, nil
		}
	}
	if err == nil {
		err = s.fail("%.40q is not a reason for a drop", name)
	}
	return "", err
}

func readReply(s *scanner) (*stream.Reply, error) {
	if s.null() {
		return nil, nil
	}
	r := &stream.Reply{}
	return r, s.object(func(key []byte) (err error) {
		switch string(key) {
		case "status":
			if s.null() {
				return nil
			}
			if r.Status, err = s.count(); err == nil && r.Status != 0 && (r.Status < 200 || r.Status > 599) {
				err = s.fail("status %d is not one from 200 to 599", r.Status)
			}
		case "content_type":
			if s.null() {
				return nil
			}
			r.ContentType, err = s.name()
		case "header":
			if s.null() {
				return nil
			}
			err = s.object(func(key []byte) error {
				name := string(key)
				v, err := s.str()
				if r.Header == nil {
					r.Header = map[string]string{}
				}
				r.Header[name] = v
				return err
			})
		default:
			err = s.fail("%q is not a member of a reply", key)
		}
		return err
	})
}

func readFailure(s *scanner) (*failure, error) {
	f := &failure{code: stream.Internal}
	return f, s.object(func(key []byte) (err error) {
		if s.null() {
			return nil
		}
		switch string(key) {
		case "code":
			var name string
			name, err = s.name()
			if f.code = codeOf(name); err == nil && f.code == "" {
				err = s.fail("%.40q is not a code of an error", name)
			}
		case "field":
			f.field, err = s.name()
		case "message":
			f.message, err = s.str()
		case "traceback":
			f.traceback, err = s.str()
		case "status":
			if f.status, err = s.count(); err == nil && (f.status < 200 || f.status > 599) {
				err = s.fail("status %d is not one from 200 to 599", f.status)
			}
		default:
			err = s.fail("%q is not a member of an error", key)
		}
		return err
	})
}

func (m *message) readSpan(s *scanner) error {
	p := span{request: -1}
	err := s.object(func(key []byte) (err error) {
		switch string(key) {
		case "name":
			p.name, err = s.name()
		case "start_us":
			p.start, err = s.count()
		case "end_us":
			p.end, err = s.count()
		case "request":
			if s.null() {
				return nil
			}
			p.request, err = s.count()
		default:
			err = s.fail("%q is not a member of a span", key)
		}
		return err
	})
	m.spans = append(m.spans, p)
	return err
}
