package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"millrace/client"
	"millrace/stream/rules"
)

// showCounts is the command that shows or resets the counts of a stream's rules.
func showCounts() *cobra.Command {
	c := &cobra.Command{
		Use:   "counts NAME",
		Short: "Show or reset the counts of the lines and zones of a stream",
		Example: "  millrace streams counts gate\n  millrace streams counts gate --json\n" +
			"  millrace streams counts gate --reset",
		Args: wrongUsage(cobra.ExactArgs(1)),

		ValidArgsFunction: completeStreams,
	}
	host := remoteFlags(c)
	asJSON := c.Flags().Bool("json", false, "as JSON")
	reset := c.Flags().Bool("reset", false, "make all counts 0; objects stay in their zones")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		ask := cl.StreamCounts
		if *reset {
			ask = cl.ResetStreamCounts
		}
		counts, err := ask(c.Context(), args[0])
		switch {
		case err != nil:
			return suggestStream(c.Context(), cl, args[0], err)
		case *asJSON:
			return writeJSON(c.OutOrStdout(), counts)
		case len(counts.Models) == 0:
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s has no rules, or no loaded model with tracks\n", args[0])
			return err
		}
		return table(c.OutOrStdout(), countRows(&counts)...)
	}
	return c
}

// countRows returns a row for each direction of a rule and class, and for all classes.
func countRows(counts *client.StreamCounts) [][]string {
	rows := [][]string{{"MODEL", "RULE", "CLASS", "COUNT", "TOTAL", "MINUTE", "HOUR", "DAY"}}
	add := func(model, rule, class, what string, numbers ...uint64) {
		row := []string{model, rule, class, what}
		for _, n := range numbers {
			row = append(row, count(n))
		}
		for len(row) < len(rows[0]) {
			row = append(row, "")
		}
		rows = append(rows, row)
	}
	for i := range counts.Models {
		m := &counts.Models[i]
		for _, l := range m.Lines {
			line := func(class string, n rules.Crossings) {
				add(m.Model, l.Name, class, rules.In, n.In, n.Minute.In, n.Hour.In, n.Day.In)
				add(m.Model, l.Name, class, rules.Out, n.Out, n.Minute.Out, n.Hour.Out, n.Day.Out)
			}
			line("all", l.Crossings)
			for _, class := range slices.Sorted(maps.Keys(l.Classes)) {
				line(class, l.Classes[class])
			}
		}
		for _, z := range m.Zones {
			zone := func(class string, n rules.Stays) {
				add(m.Model, z.Name, class, "now", uint64(max(n.Now, 0)))
				add(m.Model, z.Name, class, "enter", n.Enter, n.Minute.Enter, n.Hour.Enter, n.Day.Enter)
				add(m.Model, z.Name, class, "leave", n.Leave, n.Minute.Leave, n.Hour.Leave, n.Day.Leave)
			}
			zone("all", z.Stays)
			for _, class := range slices.Sorted(maps.Keys(z.Classes)) {
				zone(class, z.Classes[class])
			}
		}
	}
	return rows
}
