package main

import (
	"errors"

	"github.com/spf13/cobra"

	"millrace/compat"
	"millrace/compat/style"
	"millrace/server"
	"millrace/workers"
)

// compatCommands returns the commands of other systems.
func compatCommands() (out []*cobra.Command) {
	for _, s := range compat.Styles {
		if s.Command != nil {
			out = append(out, compatCommand(s.Command))
		}
	}
	return out
}

func compatCommand(of *style.Command) *cobra.Command {
	c := &cobra.Command{Use: of.Use, Short: of.Short, Long: of.Long, Example: of.Example, DisableFlagParsing: true}
	run := of.Begin(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		err := run(&style.Call{
			Context: c.Context(), Args: args, Out: c.OutOrStdout(), Err: c.ErrOrStderr(), Version: version,
			Parse: func(args []string) (bool, error) { return parseFlags(c, args) },
			Serve: func(cfg server.Config) (failed, err error) { return serveStyle(c, cfg) },
			App:   func(args []string) error { return runApp(c, args) },
		})
		var usage style.UsageError
		if errors.As(err, &usage) {
			return usageError{usage.Err}
		}
		return err
	}
	return c
}

// runApp runs the command app in place of the command of.
func runApp(of *cobra.Command, args []string) error {
	app := appCommand()
	app.SetArgs(args)
	app.SetOut(of.OutOrStdout())
	app.SetErr(of.ErrOrStderr())
	app.SilenceErrors, app.SilenceUsage = true, true
	return app.ExecuteContext(of.Context())
}

// parseFlags parses the flags of a command that reads its arguments itself, or prints its help.
func parseFlags(c *cobra.Command, args []string) (helped bool, err error) {
	c.DisableFlagParsing = false
	if err := c.ParseFlags(args); err != nil {
		return false, flagError(c, err)
	}
	if help, _ := c.Flags().GetBool("help"); help {
		return true, c.Help()
	}
	return false, nil
}

// serveStyle runs a server, and returns the last failure of the program at the root.
func serveStyle(c *cobra.Command, cfg server.Config) (failed, err error) {
	if err := checkReachable(cfg); err != nil {
		return nil, err
	}
	s, err := serveConfig(c, cfg, nil, func(err error) error { return err })
	if s != nil {
		failed = s.RootFailure()
	}
	return failed, err
}

// runInstead runs a program in place of this process, if the program was written for a system that has such
// arguments.
func runInstead(source string, args []string) error {
	for _, s := range compat.Styles {
		if s.Program != nil {
			if err := s.Program.Instead(source, args); err != nil {
				return err
			}
		}
	}
	return nil
}

// configureByProgram has the program at the root change the configuration by its arguments.
func configureByProgram(cfg *server.Config, m *workers.Config, args []string) {
	for _, s := range compat.Styles {
		if s.Program != nil {
			s.Program.Configure(cfg, m, args)
		}
	}
}
