package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/apps"
)

// appRun serves the application.
func appRun(*pflag.FlagSet) appStep {
	return appStep{name: "run", short: "serve the application; what follows on -- are flags of the server",
		takesArgs: true, run: func(c *appCall) (any, error) {
			app, release, err := c.use()
			if err != nil {
				return nil, err
			}
			defer release()
			return nil, c.serve(app)
		}}
}

// serve runs the command that serves applications of the form: serve, or the command of a system.
func (c *appCall) serve(app *apps.App) error {
	args := append([]string{"--config", app.File}, c.args...)
	name := "serve"
	if app.Format != apps.Millrace.Name {
		name, args = app.Format, append(args, "run")
	}
	all := c.Root().Commands()
	i := slices.IndexFunc(all, func(c *cobra.Command) bool { return c.Name() == name })
	if i < 0 {
		return fmt.Errorf("there is no command %s", name)
	}
	of := all[i]
	of.SetContext(c.Context())
	if of.DisableFlagParsing {
		return of.RunE(of, args)
	}
	if err := of.ParseFlags(args); err != nil {
		return flagError(of, err)
	}
	return of.RunE(of, of.Flags().Args())
}
