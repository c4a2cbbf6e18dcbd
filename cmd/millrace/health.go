package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/stream/coded"
)

// healthTimeout is how long the server may take to answer.
const healthTimeout = 5 * time.Second

func healthCommand() *cobra.Command {
	var live bool
	var wait time.Duration
	c := &cobra.Command{
		Use:   "health",
		Short: "Exit with 0 if a server is ready",
		Long: `Ask a running server whether the server is ready: all models of the configuration are loaded, and the server does not drain. No key
is needed. The exit status is 0 if the server is ready, and otherwise 1, also when the server does not answer
within 5 s. Images of containers have the command as their health check.

With --wait the command asks again until the server is ready, also while no server answers at the address.`,
		Example: "  millrace health\n  millrace health --live\n  millrace serve --config millrace.yaml & millrace " +
			"health --wait 30s && millrace models",
		Args: wrongUsage(cobra.NoArgs),
	}
	host := remoteFlags(c)
	c.Flags().BoolVar(&live, "live", false, "0 if the server answers, also while it loads models or drains")
	c.Flags().DurationVar(&wait, "wait", 0, "longest wait until the server is ready (no wait: ask once)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if wait < 0 {
			return usagef("--wait: %v is negative", wait)
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		end := time.Now().Add(wait)
		for {
			word, err := askHealth(c.Context(), cl, live)
			if err == nil {
				_, err = fmt.Fprintln(c.OutOrStdout(), word)
				return err
			}
			if c.Context().Err() != nil || !time.Now().Add(waitPause).Before(end) || needsCredentials(err) {
				return err
			}
			select {
			case <-c.Context().Done():
			case <-time.After(waitPause):
			}
		}
	}
	return c
}

// askHealth asks a server once, and returns ready, or live if live is set and the server answers.
func askHealth(ctx context.Context, cl *client.Client, live bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	h, err := cl.Health(ctx)
	switch {
	case err != nil:
		return "", err
	case h.Ready:
		return "ready", nil
	case live:
		return "live", nil
	}
	return "", errors.New("the server is not ready: millrace models says which models are not loaded")
}

// needsCredentials reports whether a server asks for other credentials, so that waiting is useless.
func needsCredentials(err error) bool {
	code := coded.CodeOf(err)
	return code == coded.Unauthenticated || code == coded.PermissionDenied
}
