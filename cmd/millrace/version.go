package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"millrace/internal/codec"
)

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  millrace version\n  millrace version --json",
		Args:    wrongUsage(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(map[string]any{
					"version": version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
					"turbojpeg": codec.Turbo, "libwebp": codec.LibWebP,
				})
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "millrace %s (%s %s/%s, turbojpeg %v, libwebp %v)\n", version,
				runtime.Version(), runtime.GOOS, runtime.GOARCH, codec.Turbo, codec.LibWebP)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}
