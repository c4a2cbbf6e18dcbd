package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"millrace/config"
	"millrace/internal/openapi"
	"millrace/internal/setting"
	"millrace/server"
)

const apiSchemaExamples = `  millrace api-schema
  millrace api-schema --model spotter --out spotter.json
  millrace api-schema --config millrace.yaml`

func apiSchemaCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "api-schema",
		Short: "Print the OpenAPI document of a server and the loaded models",
		Long: `Print the OpenAPI 3.1 document of a running server and the loaded models. The server has the same document at /openapi.json,
and as a page at /docs. With --config, print the document of a configuration: the models are loaded, and nothing is served.`,
		Example: apiSchemaExamples,
		Args:    wrongUsage(cobra.NoArgs),
	}
	host := remoteFlags(c)
	f := c.Flags()
	model := f.String("model", "", "only the calls of this model (all)")
	file := f.String("config", "", "a configuration file, in place of a running server")
	out := f.String("out", "", "the file to write (standard output)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		document := host.openAPI
		if f.Changed("config") {
			if err := without(f, "with --config, which needs no server", "addr", "ca", "fingerprint"); err != nil {
				return err
			}
			document = func(ctx context.Context) ([]byte, error) { return configuredOpenAPI(ctx, *file) }
		}
		text, err := document(c.Context())
		if err != nil {
			return err
		}
		var decoded map[string]any
		if err := json.Unmarshal(text, &decoded); err != nil {
			return fmt.Errorf("the OpenAPI document cannot be read: %w", err)
		}
		if names := openapi.ModelsOf(decoded); *model != "" && !openapi.OnlyModel(decoded, *model) {
			return fmt.Errorf("--model: %q is not loaded%s", *model, setting.Suggest(*model, names))
		}
		var b bytes.Buffer
		if err := writeJSON(&b, decoded); err != nil {
			return err
		}
		if *out == "" {
			_, err = c.OutOrStdout().Write(b.Bytes())
			return err
		}
		if err := os.WriteFile(*out, b.Bytes(), 0o666); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
		return nil
	}
	return c
}

// openAPI returns the document of the running server.
func (r *remote) openAPI(ctx context.Context) ([]byte, error) {
	cl, err := r.dial()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return cl.OpenAPI(ctx)
}

// configuredOpenAPI loads the models of a configuration and returns the document of the server.
func configuredOpenAPI(ctx context.Context, file string) ([]byte, error) {
	cfg, err := config.Load(file)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	cfg.HTTP, cfg.GRPC, cfg.Version = "127.0.0.1:0", server.Off, version
	if cfg.Metrics.Address != "" && cfg.Metrics.Address != server.Off {
		cfg.Metrics.Address = "127.0.0.1:0"
	}
	cfg.Streams, cfg.StreamsFile, cfg.Log.Level, cfg.Log.File = nil, "", "error", ""
	s, err := server.New(cfg)
	hideFromPrograms(&cfg)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }() // ends with the context
	select {
	case err := <-done:
		return nil, err
	case <-s.Ready():
	}
	text, err := json.Marshal(s.OpenAPI())
	stop()
	return text, firstOf(<-done, err)
}
