// Command millrace is the server and its tools: one file for each subcommand.
package main

//go:generate sh ../../scripts/settings-pages.sh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"millrace/compat/style"
	"millrace/config"
	"millrace/internal/video"
	"millrace/workers/onnx"
)

// version is set by the build.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if self, err := os.Executable(); err == nil {
		onnx.SetProgram(self)
	}
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// run returns the exit status: 0, 1 for a failure, 2 for wrong usage, or the status of a style.StatusError. Errors
// are written to stderr.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	return execute(ctx, newRoot(), args, stderr)
}

// execute is run with a root command.
func execute(ctx context.Context, root *cobra.Command, args []string, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetErr(stderr)
	c, err := root.ExecuteContextC(ctx)
	var usage usageError
	var other style.StatusError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "millrace: %v\nTry: %s --help\n", err, c.CommandPath())
		return exitUsage
	}
	text := err.Error()
	if c.Name() != "app" { // whose servers are not those of --addr
		text = errorText(err)
	}
	fmt.Fprintf(stderr, "millrace: %s\n", text)
	if said := video.OutputOf(err); said != "" {
		fmt.Fprintf(stderr, "ffmpeg's last output: %s\n", said)
	}
	if errors.As(err, &other) {
		return other.Status
	}
	return exitFailure
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "millrace",
		Short: "An inference server for streams of frames",
		Long: "An inference server for streams of frames.\n\nExit status: 0 = success, 1 = a failure, 2 = " +
			"wrong usage.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,
		Args:          wrongUsage(cobra.NoArgs),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRun: func(c *cobra.Command, _ []string) {
			hideSecrets()
			// completion reads the variable later
			if c.Name() != cobra.ShellCompRequestCmd && c.Name() != cobra.ShellCompNoDescRequestCmd {
				// remoteFlags has read the variable; child processes must not get the variable
				_ = os.Unsetenv(config.EnvToken)
			}
		},
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		serveCommand(),
		runCommand(),
		initCommand(),
		demoCommand(),
		appCommand(),
		streamCommand(),
		streamsCommand(),
		eventsCommand(),
		tasksCommand(),
		dataCommand(),
		workCommand(),
		recordCommand(),
		replayCommand(),
		compareCommand(),
		inferCommand(),
		modelsCommand(),
		keysCommand(),
		usersCommand(),
		examplesCommand(),
		apiSchemaCommand(),
		logLevelCommand(),
		topCommand(),
		benchCommand(),
		checkCommand(),
		doctorCommand(),
		healthCommand(),
		configCommand(),
		versionCommand(),
		manCommand(),
		isolatedCommand(),
	)
	root.AddCommand(compatCommands()...)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help": // cobra's help command accepts any word
			c.Args = func(_ *cobra.Command, args []string) error {
				if found, rest, err := root.Find(args); err != nil || len(rest) > 0 && found.HasAvailableSubCommands() {
					return notACommand(found, args[len(args)-max(len(rest), 1)])
				}
				return nil
			}
		case "completion":
			c.Args = wrongUsage(cobra.NoArgs)
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
			for _, shell := range c.Commands() {
				shell.Args = wrongUsage(cobra.NoArgs)
			}
		}
	}
	completeFlags(root)
	wrapHelp(root)
	return root
}
