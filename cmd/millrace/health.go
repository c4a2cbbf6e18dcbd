package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// healthTimeout is how long the server may take to answer.
const healthTimeout = 5 * time.Second

func healthCommand() *cobra.Command {
	var live bool
	c := &cobra.Command{
		Use:   "health",
		Short: "Exit with 0 if a server is ready",
		Long: `Ask a running server whether it is ready: all models of its configuration are loaded, and it does not drain. No key is needed. The exit status is 0 if it
is, and otherwise 1, also when it does not answer within 5 s. Images of containers have it as their health check.`,
		Example: "  millrace health\n  millrace health --live",
		Args:    wrongUsage(cobra.NoArgs),
	}
	host := remoteFlags(c)
	c.Flags().BoolVar(&live, "live", false, "0 if it answers, also while it loads models or drains")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		ctx, cancel := context.WithTimeout(c.Context(), healthTimeout)
		defer cancel()
		h, err := cl.Health(ctx)
		switch {
		case err != nil:
			return err
		case h.Ready:
			_, err = fmt.Fprintln(c.OutOrStdout(), "ready")
		case live:
			_, err = fmt.Fprintln(c.OutOrStdout(), "live")
		default:
			err = errors.New("the server is not ready: millrace models says which models are not loaded")
		}
		return err
	}
	return c
}
