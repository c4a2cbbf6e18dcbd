package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// starter contains the files written by init.
//
//go:embed starter
var starter embed.FS

const initExamples = `  millrace init
  millrace init ./hello
  millrace init ./hello --json`

func initCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "init [FOLDER]",
		Short: "Write a small Python service and a test",
		Long: `Write a small Python service and a test into a new or existing folder; without FOLDER, into the working directory. No file
is overwritten. The service is served by millrace serve FOLDER/service.py.`,
		Example: initExamples,
		Args:    wrongUsage(cobra.MaximumNArgs(1)),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	asJSON := c.Flags().Bool("json", false, "as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		dir := "."
		if len(args) == 1 {
			dir = args[0]
		}
		files, err := writeStarter(dir)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(c.OutOrStdout(), map[string][]string{"files": files})
		}
		into := ""
		if dir != "." {
			into = "cd " + dir + "\n  "
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "wrote %s\n\nTest it, and serve it, so that a change of the file is "+
			"served at once:\n  %spython3 -m unittest\n  millrace serve ./service.py --watch\n\nCall it:\n  curl -s "+
			"http://127.0.0.1:8000/infer -H 'Content-Type: application/json' -d '{\"text\": \"to be or not to be\"}'\n",
			strings.Join(files, ", "), into)
		return err
	}
	return c
}

// writeStarter writes the files of a service into a folder and returns their paths.
func writeStarter(dir string) (files []string, err error) {
	names, err := fs.Glob(starter, "starter/*.py")
	if err != nil {
		return nil, err
	}
	for _, name := range names { // all are looked for before the first is written
		path := filepath.Join(dir, filepath.Base(name))
		if _, err := os.Lstat(path); err == nil {
			return nil, fmt.Errorf("init: %s exists already: choose another folder", path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("init: %w", err)
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("init: %w", err)
	}
	for _, name := range names {
		text, err := starter.ReadFile(name)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(dir, filepath.Base(name))
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return files, fmt.Errorf("init: %w", err)
		}
		_, err = f.Write(text)
		if err = errors.Join(err, f.Close()); err != nil {
			return files, fmt.Errorf("init: %w", err)
		}
		files = append(files, path)
	}
	return files, nil
}
