package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// manCommand is for scripts/release.sh: users have the pages already.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man FOLDER",
		Short:   "Write the manual pages of all commands to a folder",
		Example: "  millrace man out/man1",
		Hidden:  true,
		Args:    wrongUsage(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writePages(c.Root(), args[0])
		},
	}
}

// writePages writes the manual pages of a command and its subcommands.
func writePages(c *cobra.Command, dir string) error {
	if c.Hidden || c.Name() == "help" {
		return nil
	}
	name := pageName(c)
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(page(c)), 0o644); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if err := writePages(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// page returns a command's help as roff with the macros of man(7).
func page(c *cobra.Command) string {
	c.InitDefaultHelpFlag()
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q 1 \"\" %q\n.SH NAME\n%s \\- %s\n", strings.ToUpper(pageName(c)), "millrace "+version,
		pageName(c), roff(c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n%s\n.fi\n", roff(c.UseLine()))
	if c.Long != "" {
		fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", strings.ReplaceAll(roff(c.Long), "\n\n", "\n.PP\n"))
	}
	if flags := c.Flags().FlagUsagesWrapped(helpColumns); flags != "" {
		fmt.Fprintf(&b, ".SH OPTIONS\n.nf\n%s.fi\n", roff(flags))
	}
	if c.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(c.Example))
	}
	var others []string
	if c.HasParent() {
		others = append(others, pageName(c.Parent()))
	}
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			others = append(others, pageName(sub))
		}
	}
	for i, other := range others {
		if i == 0 {
			b.WriteString(".SH SEE ALSO\n")
		}
		fmt.Fprintf(&b, ".BR %s (1)\n", roff(other))
	}
	return b.String()
}

// roff escapes text: backslashes and hyphens, and the marks of requests at the beginning of
// a line.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
