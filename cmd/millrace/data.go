package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/internal/setting"
	"millrace/server"
	"millrace/tasks"
)

func dataCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "data",
		Short:   "Check, export and import the tasks of a stopped server",
		Long:    "Commands for the data folder of a stopped server, where the server keeps tasks.",
		Example: "  millrace data check ./data\n  millrace data export tasks.tar --data ./data",
		Args:    wrongUsage(cobra.NoArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(checkData(), exportData(), importData())
	return c
}

// dataFlags adds the settings of the data folder to a command.
func dataFlags(c *cobra.Command) *flagSettings {
	var all pflag.FlagSet
	f := configFlags(&all)
	all.VisitAll(func(flag *pflag.Flag) {
		if name := flag.Name; name == "config" || name == "data" || name == "tasks-blobs" ||
			strings.HasPrefix(name, "tasks-s3-") {
			c.Flags().AddFlag(flag)
		}
	})
	return f
}

// dataOptions returns the data folder, and where the inputs and results are.
func dataOptions(c *cobra.Command, f *flagSettings) (folder string, o tasks.Options, err error) {
	cfg, err := f.config(nil)
	if err != nil {
		return "", o, err
	}
	if cfg.Data == "" {
		return "", o, usagef("--data: is missing: name the data folder, or the server's configuration with --config")
	}
	log := slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	o, err = server.DataOptions(&cfg, log)
	return cfg.Data, o, f.withFlagNames(cfg, err)
}

func checkData() *cobra.Command {
	c := &cobra.Command{
		Use:   "check [FOLDER]",
		Short: "Compare all inputs and results of a data folder with their SHA-256",
		Long: `Read the data folder of a stopped server: the records of the tasks, and each input and result. Problems
are damaged and missing files, files without a record, and missing records. The exit status is 1 when there are
problems. The command repairs nothing, and changes no file outside the folder jetstream, which has the records.

When inputs and results are in S3 (tasks.blobs), give the settings of the server, for example with --config.`,
		Example: "  millrace data check ./data\n  millrace data check --config millrace.yaml --json",
		Args:    wrongUsage(cobra.MaximumNArgs(1)),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	settings := dataFlags(c)
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 1 {
			if c.Flags().Changed("data") {
				return usagef("--data: FOLDER names the data folder already")
			}
			if err := c.Flags().Set("data", args[0]); err != nil {
				return err
			}
		}
		folder, o, err := dataOptions(c, settings)
		if err != nil {
			return err
		}
		report, err := tasks.CheckData(c.Context(), folder, o)
		if err != nil {
			return err
		}
		if *asJSON {
			err = writeJSON(c.OutOrStdout(), report)
		} else {
			err = printCheck(c, report)
		}
		if n := len(report.Problems); err == nil && n > 0 {
			err = fmt.Errorf("the data folder %s has %d problems", folder, n)
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
	_, err := fmt.Fprintf(c.OutOrStdout(), "%d tasks, %d files with %s, %d unfinished uploads, %d problems\n", r.Tasks,
		r.Files, setting.FormatSize(r.Bytes), r.Uploads, len(r.Problems))
	return err
}

func exportData() *cobra.Command {
	c := &cobra.Command{
		Use:   "export FILE|-",
		Short: "Write all tasks with their inputs, results and logs to a tar file",
		Long: `Write the tasks of a stopped server to a tar file, or to standard output: the records of waiting, finished
and failed tasks, with inputs, results and logs. The SHA-256 of each input and result is checked. millrace data import
reads the file: on another machine, or into S3 (tasks.blobs).

The file has neither unfinished uploads, whose number is printed, nor the folders of container models and of programs
that were posted. The file is not encrypted, and may have secrets: inputs, results, addresses of webhooks. FILE must
not exist.`,
		Example: "  millrace data export tasks.tar --data ./data\n" +
			"  millrace data export - --config millrace.yaml | ssh new-host millrace data import - --data /srv/tasks",
		Args: wrongUsage(cobra.ExactArgs(1)),
	}
	settings := dataFlags(c)
	asJSON := c.Flags().Bool("json", false, "print the report as JSON, to standard error if FILE is -")
	c.RunE = func(c *cobra.Command, args []string) error {
		folder, o, err := dataOptions(c, settings)
		if err != nil {
			return err
		}
		w := newArchiveRun(c, "exported", *asJSON)
		if args[0] == "-" {
			if isTerminal(c.OutOrStdout()) {
				return usagef("-: standard output is a terminal: name a file, or redirect the output")
			}
			w.out = c.ErrOrStderr()
			report, err := tasks.Export(c.Context(), folder, c.OutOrStdout(), w.options(o))
			return w.end(report, err)
		}
		var report *tasks.ArchiveReport
		err = writeNewFile(args[0], func(f io.Writer) (err error) {
			report, err = tasks.Export(c.Context(), folder, f, w.options(o))
			return err
		})
		return w.end(report, err)
	}
	return c
}

// writeNewFile writes a new file, which is there as a whole or not at all.
func writeNewFile(name string, write func(io.Writer) error) error {
	if _, err := os.Lstat(name); err == nil {
		return fmt.Errorf("%s exists: name another file", name)
	}
	part := name + ".part"
	f, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if failed := f.Close(); err == nil {
		err = failed
	}
	if err == nil {
		return os.Rename(part, name)
	}
	return errors.Join(err, os.Remove(part))
}

func importData() *cobra.Command {
	c := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Make a new data folder of a file of millrace data export",
		Long: `Read a file of millrace data export, or standard input, and make a data folder with the tasks: a server
with the folder runs the waiting tasks, and has the results of the finished tasks. With tasks.blobs, inputs and results
go to S3. Each record and each SHA-256 is checked.

The data folder, and the prefix in tasks.blobs, must be new or empty. After an error, nothing is left.`,
		Example: "  millrace data import tasks.tar --data ./data\n" +
			"  millrace data import tasks.tar --config millrace.yaml --tasks-blobs s3://bucket/prefix --json",
		Args: wrongUsage(cobra.ExactArgs(1)),
	}
	settings := dataFlags(c)
	asJSON := c.Flags().Bool("json", false, "print the report as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		folder, o, err := dataOptions(c, settings)
		if err != nil {
			return err
		}
		in := c.InOrStdin()
		if args[0] != "-" {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			in = f
		}
		w := newArchiveRun(c, "imported", *asJSON)
		report, err := tasks.Import(c.Context(), folder, in, w.options(o))
		return w.end(report, err)
	}
	return c
}

// archiveRun prints the progress and the end of an export or import.
type archiveRun struct {
	verb   string
	out    io.Writer
	asJSON bool
	lines  *progress
	last   time.Time
}

// progressEvery is the time between two lines of progress.
const progressEvery = time.Second

func newArchiveRun(c *cobra.Command, verb string, asJSON bool) *archiveRun {
	return &archiveRun{verb: verb, out: c.OutOrStdout(), asJSON: asJSON, lines: newProgress(c.ErrOrStderr()),
		last: time.Now()}
}

func (w *archiveRun) options(o tasks.Options) tasks.ArchiveOptions {
	return tasks.ArchiveOptions{Options: o, Version: version, Progress: func(n int, bytes int64, all *tasks.Manifest) {
		if now := time.Now(); now.Sub(w.last) >= progressEvery {
			w.last = now
			w.lines.line(fmt.Sprintf("%s %d of %d tasks, %s of %s", w.verb, n, all.Total(), setting.FormatSize(bytes),
				setting.FormatSize(all.Bytes)))
		}
	}}
}

func (w *archiveRun) end(r *tasks.ArchiveReport, err error) error {
	w.lines.end()
	if err != nil {
		return err
	}
	if w.asJSON {
		return writeJSON(w.out, r)
	}
	var states []string
	for _, s := range tasks.States {
		if n := r.Tasks[s]; n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, s))
		}
	}
	text := "no tasks"
	if len(states) > 0 {
		text = fmt.Sprintf("%d tasks (%s)", r.Total(), strings.Join(states, ", "))
	}
	_, err = fmt.Fprintf(w.out, "%s %s with %d files, %s\n", w.verb, text, r.Blobs, setting.FormatSize(r.Bytes))
	if err == nil && r.Uploads > 0 {
		_, err = fmt.Fprintf(w.out, "left out %d unfinished uploads: their clients begin again\n", r.Uploads)
	}
	return err
}
