// Package octoai serves services that were written for OctoAI: the command millrace octoai, and the routes and
// replies of OctoAI's server.
//
// It owns all that OctoAI defines. It must not know the server.
package octoai

import "millrace/compat/style"

const name = "octoai" // of the style

// Style is the style of services of OctoAI.
var Style = style.Style{HTTP: &routes, Command: &command}
