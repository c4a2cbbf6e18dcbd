package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/internal/setting"
)

// Exit statuses.
const (
	exitFailure = 1
	exitUsage   = 2
)

// usageError is wrong usage: exit status 2.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// wrongUsage returns an argument check whose errors are wrong usage and name the command's arguments.
func wrongUsage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		_, takes, _ := strings.Cut(c.Use, " ")
		switch {
		case check(c, args) == nil:
			return nil
		case c.HasAvailableSubCommands():
			return notACommand(c, args[0])
		case takes == "":
			return usagef("%s takes no arguments, and %q is one", nameOf(c), args[0])
		}
		if strings.Contains(takes, "[-- ") {
			args, _ = atDash(c, args)
		}
		hint := ""
		if len(args) > 1 && c.Flags().Lookup("model") != nil && c.Flags().Lookup("replicas") != nil {
			hint = ". Several models: --model NAME=SOURCE for each"
		}
		return usagef("%s takes %s: %d given%s", nameOf(c), takes, len(args), hint)
	}
}

// nameOf returns a command's name without the leading "millrace".
func nameOf(c *cobra.Command) string { return strings.TrimPrefix(c.CommandPath(), "millrace ") }

// notACommand is the error about a word where the name of a command of c is
// expected.
func notACommand(c *cobra.Command, word string) error {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	hint := setting.Suggest(word, names)
	if hint == "" {
		hint = ": there are " + strings.Join(names, ", ")
	}
	return usagef("%q is not a command of %s%s", word, nameOf(c), hint)
}

// flagError describes the mistake in a flag, beginning with the flag.
func flagError(c *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return pflag.ErrHelp
	}
	var (
		unknown  *pflag.NotExistError
		invalid  *pflag.InvalidValueError
		required *pflag.ValueRequiredError
	)
	switch {
	case errors.As(err, &unknown):
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		name := dashes(unknown.GetSpecifiedName())
		hint := setting.Suggest(name, names)
		if use := foreignFlags[name]; use != "" && c.Flags().Lookup("replicas") != nil {
			hint = ": use " + use
		} else if hint == "" && strings.Contains(c.Use, "[-- ARG...]") {
			hint = ". Arguments of the program follow on --"
		}
		return usagef("%s: is not a flag of %s%s", name, nameOf(c), hint)
	case errors.As(err, &required):
		return usagef("%s: its value is missing", dashes(required.GetSpecifiedName()))
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		return usagef("--%s: %q is not %s", f.Name, invalid.GetValue(), describeValues(f.Value.Type()))
	}
	return usageError{err}
}

// foreignFlags maps flags of other servers to advice for this server.
var foreignFlags = map[string]string{
	"--port": "--http 127.0.0.1:PORT", "--host": "--http HOST:PORT", "--bind": "--http HOST:PORT",
	"--address": "--http HOST:PORT",
	"--workers": "--replicas", "--instances": "--replicas", "--num-workers": "--replicas", "--reload": "--watch",
	"--class": "FILE.py:CLASS as the source", "--name": "--model NAME=SOURCE",
}

// dashes returns a flag's name with its dashes.
func dashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// describeValues describes the values of a flag of a type.
func describeValues(typ string) string {
	switch typ {
	case "bool":
		return "true or false"
	case "int":
		return "a whole number"
	case "uint64":
		return "a whole number of 0 or more"
	case "float64":
		return "a number"
	case "duration":
		return "a duration such as 5ms or 10s"
	}
	return "a " + typ
}

// notZero returns an error for a flag with the value 0: internally, 0 means that the flag was not given.
func notZero(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if f := flags.Lookup(name); f != nil && f.Changed && (f.Value.String() == "0" || f.Value.String() == "0s") {
			return usagef("--%s: 0 is not allowed: leave it out for its default", name)
		}
	}
	return nil
}

// without returns an error for a given flag without effect; why is the reason.
func without(flags *pflag.FlagSet, why string, names ...string) error {
	for _, name := range names {
		if flags.Changed(name) {
			return usagef("--%s: has no effect %s: leave it out", name, why)
		}
	}
	return nil
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }
