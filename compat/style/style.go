// Package style has the type Style: all that programs of another system need of the server and of the command
// millrace.
//
// The parts of a Style are types of the packages that use them. Package style must not know a system.
package style

import (
	"context"
	"io"

	"github.com/spf13/pflag"

	applications "millrace/apps"
	"millrace/config"
	"millrace/ingest/apps"
	"millrace/ingest/grpc"
	"millrace/tracing"
	"millrace/workers"
	"millrace/workers/python"
)

// Style is a system for which programs were written. All fields but HTTP may be nil.
type Style struct {
	HTTP    *apps.Style   // the name of the style, and its routes
	GRPC    *grpc.Style   // how the method ModelInfer is answered
	Python  *python.Style // the file that describes a program
	Metrics *Metrics      // of requests
	Command *Command      // a subcommand of millrace
	Program *Program      // for the commands serve and run
	// Application is the form of configuration files of millrace app, which Command serves with the flag --config.
	Application *applications.Format
}

// Name returns the name of the style, a value of the setting style of models.
func (s *Style) Name() string { return s.HTTP.Name }

// Metrics are the metrics of requests as the system names them.
type Metrics struct {
	On    func(parts []any) bool // reports whether the registered settings turn the names on
	Names tracing.RequestNames
}

// Command is a subcommand that reads its arguments itself.
type Command struct {
	Use, Short, Long, Example string
	// Begin adds the flags of the command, and returns the function that runs it.
	Begin func(flags *pflag.FlagSet) func(*Call) error
}

// Call is a call of a command.
type Call struct {
	Context  context.Context
	Args     []string
	Out, Err io.Writer
	Version  string // of the program millrace
	// Parse parses the flags in args, or prints the help of the command when args ask for it.
	Parse func(args []string) (helped bool, err error)
	// Serve runs a server until Context ends. failed is the last failure of the program at the root while the server
	// ran.
	Serve func(cfg config.Config) (failed, err error)
	// App runs the command millrace app with arguments.
	App func(args []string) error
}

// UsageError is wrong usage of a command.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e UsageError) Unwrap() error { return e.Err }

// StatusError is a failure for which the command ends with Status.
type StatusError struct {
	Err    error
	Status int
}

func (e StatusError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e StatusError) Unwrap() error { return e.Err }

// Program is how the commands serve and run treat a program that was written for the system.
type Program struct {
	// Instead runs the program in place of this process, if args ask the program for something else than to serve.
	Instead func(source string, args []string) error
	// Configure changes the configuration and the model of a program at the root, by the source of the model and the
	// arguments of the program. Settings that are set stay.
	Configure func(cfg *config.Config, m *workers.Config, args []string)
}
