package main

import (
	"io"

	"github.com/spf13/cobra"
)

func taskLogs() *cobra.Command {
	c := &cobra.Command{
		Use:   "logs ID",
		Short: "Print what the model has written for people while a task ran",
		Long: `Print the log of a task: for a container, what the container has written to stdout and stderr. The server keeps
the last MiB of the newest three attempts that wrote something; the log of each attempt but the first begins with the
line === attempt N ===. On a terminal, control characters are left out.`,
		Example: "  millrace tasks logs 01a22400e8b0a1cbd7e9c1a54a3d8f10 --follow",
		Args:    wrongUsage(cobra.ExactArgs(1)),
	}
	host := remoteFlags(c)
	follow := c.Flags().Bool("follow", false, "print further lines as they come, until the task has ended")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		r, err := cl.TaskLogs(c.Context(), args[0], *follow)
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		_, err = io.Copy(visible(c.OutOrStdout()), r)
		return err
	}
	return c
}

// visible returns a writer to w that leaves out control characters if w is a terminal.
func visible(w io.Writer) io.Writer {
	if isTerminal(w) {
		return withoutControls{w}
	}
	return w
}

// withoutControls leaves out control characters, with which a log could change the terminal.
type withoutControls struct{ to io.Writer }

// Write implements io.Writer.
func (w withoutControls) Write(b []byte) (int, error) {
	kept := make([]byte, 0, len(b))
	for _, c := range b {
		if c >= ' ' && c != 0x7f || c == '\n' || c == '\t' {
			kept = append(kept, c)
		}
	}
	if _, err := w.to.Write(kept); err != nil {
		return 0, err
	}
	return len(b), nil
}
