package sinks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"
	"time"
)

const (
	bodyMax  = 1 << 20 // bytes of a body
	bodyTime = time.Second
)

// body makes the body of a post from a line, by a template of the configuration. For one goroutine.
type body struct {
	template *template.Template
	isJSON   bool
	limit    time.Time // of the present rendering
	now      func() time.Time
}

// parseBody parses a template, for bodies that have to be JSON or any text.
func parseBody(text string, isJSON bool) (*body, error) {
	b := &body{isJSON: isJSON, now: time.Now}
	var err error
	b.template, err = template.New("body").Funcs(template.FuncMap{"json": toJSON, "inTime": b.inTime}).Parse(text)
	if err != nil {
		return nil, place(err)
	}
	check := template.Must(template.New("").Funcs(template.FuncMap{"inTime": b.inTime}).Parse("{{inTime}}")).Root
	for _, t := range b.template.Templates() {
		checkTime(t.Root, check.Nodes[0])
		t.Root.Nodes = append([]parse.Node{check.Nodes[0]}, t.Root.Nodes...) // a template may call itself
	}
	return b, nil
}

// checkTime puts the node check before the content of each loop. Loops need not write: {{range 1000000000}}{{end}}.
func checkTime(l *parse.ListNode, check parse.Node) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.IfNode:
			checkTime(n.List, check)
			checkTime(n.ElseList, check)
		case *parse.WithNode:
			checkTime(n.List, check)
			checkTime(n.ElseList, check)
		case *parse.RangeNode:
			checkTime(n.List, check)
			checkTime(n.ElseList, check)
			n.List.Nodes = append([]parse.Node{check}, n.List.Nodes...)
		}
	}
}

var errBodyTime = fmt.Errorf("the template takes longer than %v", bodyTime)

// inTime is a function of the template. It writes nothing.
func (b *body) inTime() (string, error) {
	if b.now().After(b.limit) {
		return "", errBodyTime
	}
	return "", nil
}

// toJSON is the function json of the template.
func toJSON(v any) (string, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(text.String(), "\n"), err
}

// render returns the body for a line; an empty body means that the line is not for the receiver.
func (b *body) render(line []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	b.limit = b.now().Add(bodyTime)
	var text limited
	switch err := b.template.Execute(&text, numbers(v)); {
	case errors.Is(err, errBodyTime):
		return nil, errBodyTime
	case err != nil:
		return nil, place(err)
	}
	if len(bytes.TrimSpace(text.Bytes())) == 0 {
		return nil, nil
	}
	if b.isJSON && !json.Valid(text.Bytes()) {
		return nil, errors.New("the template does not make JSON: write texts as {{json .class}}, without further " +
			"quotes, or set sinks.webhook_content_type")
	}
	return text.Bytes(), nil
}

// numbers makes numbers comparable with numbers of the template. Integers stay exact.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
	case map[string]any:
		for key, value := range v {
			v[key] = numbers(value)
		}
	case []any:
		for i, value := range v {
			v[i] = numbers(value)
		}
	}
	return v
}

// limited is a buffer that takes bodyMax bytes.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > bodyMax {
		return 0, fmt.Errorf("the body is longer than %d bytes", bodyMax)
	}
	return l.Buffer.Write(p)
}

// place returns an error of a template with the line, and the column if known, in front.
func place(err error) error {
	return errors.New(strings.Replace(err.Error(), "template: body:", "line ", 1))
}
