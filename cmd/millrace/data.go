package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"millrace/internal/setting"
	"millrace/tasks"
)

func dataCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "data",
		Short:   "Check the data folder of a stopped server",
		Long:    "Commands for the data folder of a stopped server, where the server keeps tasks.",
		Example: "  millrace data check ./data",
		Args:    wrongUsage(cobra.NoArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(checkData())
	return c
}

func checkData() *cobra.Command {
	c := &cobra.Command{
		Use:   "check FOLDER",
		Short: "Compare all inputs and results of a data folder with their SHA-256",
		Long: `Read the data folder of a stopped server: the records of the tasks, and each input and result. Problems are
damaged and missing files, files without a record, and missing records. The exit status is 1 when there are problems. The
command repairs nothing, and changes no file outside the folder jetstream, which has the records.`,
		Example: "  millrace data check ./data\n  millrace data check /var/lib/millrace --json",
		Args:    wrongUsage(cobra.ExactArgs(1)),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		log := slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
		report, err := tasks.CheckData(c.Context(), args[0], tasks.Options{Log: log})
		if err != nil {
			return err
		}
		if *asJSON {
			err = writeJSON(c.OutOrStdout(), report)
		} else {
			err = printCheck(c, report)
		}
		if n := len(report.Problems); err == nil && n > 0 {
			err = fmt.Errorf("the data folder %s has %d problems", args[0], n)
		}
		return err
	}
	return c
}

// printCheck prints the report for people.
func printCheck(c *cobra.Command, r *tasks.CheckReport) error {
	rows := [][]string{{"TASK", "STATE", "MODEL", "FILE", "PROBLEM", "NEXT STEP"}}
	for _, p := range r.Problems {
		rows = append(rows, []string{p.Task, string(p.State), p.Model, p.File, p.Problem, p.Next})
	}
	if len(r.Problems) > 0 {
		if err := table(c.OutOrStdout(), rows...); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "%d tasks, %d files with %s, %d problems\n", r.Tasks, r.Files,
		setting.FormatSize(r.Bytes), len(r.Problems))
	return err
}
