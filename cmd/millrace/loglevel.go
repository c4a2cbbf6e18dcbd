package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"millrace/client"
)

func logLevelCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "log-level [LEVEL]",
		Short: "Show or change the level of a running server's log",
		Long: `Show the level of a running server's log, or change the level until the server's next start: debug, info, warn or error.

At debug, the log has each request and the ending of each frame, at most log.debug_rate lines a second for each route and model.`,
		Example: "  millrace log-level\n  millrace log-level debug",
		Args:    wrongUsage(cobra.MaximumNArgs(1)),
	}
	host := remoteFlags(c)
	asJSON := c.Flags().Bool("json", false, "as JSON, with the other settings of the log")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		var l client.Logging
		if len(args) == 0 {
			l, err = cl.Logging(c.Context())
		} else {
			l, err = cl.ChangeLogging(c.Context(), client.LoggingChange{Level: args[0]})
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(c.OutOrStdout(), l)
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), l.Level)
		return err
	}
	return c
}
