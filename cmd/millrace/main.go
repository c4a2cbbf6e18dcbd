// Command millrace is the server and its tools: one file per subcommand.
package main

//go:generate sh -c "go run . config --markdown > ../../docs/config.md"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the build.
var version = "dev"

// Exit statuses.
const (
	exitFailure = 1
	exitUsage   = 2
)

// usageError is wrong usage: exit status 2.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// run returns the exit status: 0, 1 for a failure, 2 for wrong usage.
func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "millrace: %v\nTry: millrace --help\n", err)
		return exitUsage
	}
	fmt.Fprintf(os.Stderr, "millrace: %s\n", inCommands(err))
	return exitFailure
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "millrace",
		Short:         "An inference server for input that never stops",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,
		Args:          wrongUsage(cobra.NoArgs),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usagef("%s: %w", c.Name(), err) })
	root.AddCommand(serveCommand(), demoCommand(), streamCommand(), streamsCommand(), recordCommand(), replayCommand(), compareCommand(), inferCommand(), modelsCommand(), benchCommand(), checkCommand(), configCommand(), versionCommand())
	return root
}

// wrongUsage turns what an argument check finds into wrong usage.
func wrongUsage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usagef("%s: %w", c.Name(), err)
		}
		return nil
	}
}
