// Package mosec serves programs that were written for mosec: the routes, replies and metrics of mosec's server, and
// the arguments of a program.
//
// It owns all that mosec defines. It must not know the server.
package mosec

import "millrace/compat/style"

const name = "mosec" // of the style

// Style is the style of programs of mosec.
var Style = style.Style{HTTP: &routes, Program: &style.Program{Instead: dryRun, Configure: configure}}
