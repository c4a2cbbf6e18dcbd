package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/config"
)

// firstSettings are the flags at the top of the help of a command with settings, each with a text of one line.
var firstSettings = []struct{ flag, help string }{
	{"config", "configuration file (" + config.EnvConfig + ")"},
	{"model", "a model, as NAME=SOURCE[,key=value...]; may be repeated"},
	{"model-repository", "a folder of models, loaded at the start: docs/repository.md"},
	{"http", "address of REST and WebSocket, or off [127.0.0.1:8000]"},
	{"grpc", "address of gRPC, or off [127.0.0.1:8001]"},
	{"auth-keys", "a file with the API keys of clients, see millrace keys"},
	{"tls-self-signed", "serve https with a certificate that the server makes"},
	{"watch", "load programs again when their files change"},
	{"replicas", "multiply the instances of programs [1]"},
	{"log-level", "debug, info, warn or error [info]"},
}

// foldSettings makes --help of a command list only the command's own flags and firstSettings, and adds --help-all, a
// list of all settings by section. The command must have the flags of configFlags.
func foldSettings(c *cobra.Command) {
	all := false
	c.Flags().BoolFunc("help-all", "help with all settings, by section", func(string) error {
		all = true
		return pflag.ErrHelp
	})
	c.SetUsageFunc(func(c *cobra.Command) error {
		_, err := fmt.Fprint(c.OutOrStderr(), settingsHelp(c, all))
		return err
	})
}

// settingsHelp returns the usage of a command with settings; all = with every setting.
func settingsHelp(c *cobra.Command, all bool) string {
	settings := map[string]bool{}
	for _, s := range serverSettings() {
		settings[s.Flag] = true
	}
	var first pflag.FlagSet
	first.SortFlags = false
	sections := map[string]*pflag.FlagSet{}
	more := len(settings)
	for _, s := range firstSettings {
		f := *c.Flags().Lookup(s.flag)
		f.Usage = s.help
		first.AddFlag(&f)
		if settings[s.flag] {
			more--
		}
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Hidden:
		case settings[f.Name]:
			section, _, nested := strings.Cut(f.Name, "-")
			if !nested || !slices.Contains(sectionNames(), section) {
				section = "server"
			}
			if sections[section] == nil {
				sections[section] = &pflag.FlagSet{}
			}
			sections[section].AddFlag(f)
		case first.Lookup(f.Name) == nil:
			first.AddFlag(f)
		}
	})
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n\nExamples:\n%s\n\nFlags:\n%s", c.UseLine(), c.Example,
		first.FlagUsagesWrapped(helpColumns))
	if !all {
		fmt.Fprintf(&b, "\n%s --help-all lists %d further settings; docs/millrace.yaml lists the keys of the file.\n",
			c.CommandPath(), more)
		return b.String()
	}
	for _, section := range append([]string{"server"}, sectionNames()...) {
		if flags := sections[section]; flags != nil {
			fmt.Fprintf(&b, "\nSettings of %s:\n%s", section, flags.FlagUsagesWrapped(helpColumns))
		}
	}
	return b.String()
}

// sectionNames returns the names of the configuration's sections with several settings, in the order of the file.
func sectionNames() (names []string) {
	count := map[string]int{}
	for _, s := range serverSettings() {
		section, _, nested := strings.Cut(s.Path, ".")
		if !nested {
			continue
		}
		if count[section]++; count[section] == 1 {
			names = append(names, section)
		}
	}
	return names
}
