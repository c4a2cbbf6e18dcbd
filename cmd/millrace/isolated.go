package main

import (
	"github.com/spf13/cobra"

	"millrace/workers/onnx"
)

// isolatedCommand runs an ONNX model for the server that started this process.
func isolatedCommand() *cobra.Command {
	return &cobra.Command{
		Use:     onnx.IsolatedCommand,
		Short:   "Run an ONNX model with isolate: true (started by the server)",
		Example: "  millrace isolated-onnx",
		Hidden:  true,
		Args:    wrongUsage(cobra.NoArgs),
		RunE:    func(*cobra.Command, []string) error { return onnx.ServeIsolated() },
	}
}
