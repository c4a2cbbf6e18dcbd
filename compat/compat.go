// Package compat has the table of the other systems whose programs Millrace serves. Each system has a folder here;
// the rest of the server knows the type style.Style only. A system without programs registers an adapter.
//
// It owns the order of the styles. It must not know the server, which reads the table.
package compat

import (
	"millrace/compat/mosec"
	"millrace/compat/octoai"
	"millrace/compat/ssf"
	"millrace/compat/style"
	"millrace/workers/python"

	// This system has an adapter, which registers itself, and no style of programs.
	_ "millrace/compat/inferenceserver"
)

// Styles are all styles, in the order in which help and errors list their names.
var Styles = []*style.Style{&octoai.Style, &mosec.Style, &ssf.Style}

func init() {
	for _, s := range Styles {
		of := python.Style{Name: s.Name()}
		if s.Python != nil {
			of = *s.Python
		}
		python.Register(of)
	}
}

// Lookup returns the style of that name, or nil.
func Lookup(name string) *style.Style {
	for _, s := range Styles {
		if s.Name() == name {
			return s
		}
	}
	return nil
}
