package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/apps"
	"millrace/apps/deploy"
	"millrace/apps/source"
	"millrace/compat"
	"millrace/internal/sshclient"
)

// appSteps are the commands of app in the order in which they run. Each command is a file app_NAME.go and a line here.
var appSteps = []func(*pflag.FlagSet) appStep{
	appInit,
	appBuild,
	appLock,
	appRun,
	appTests,
	appPackage,
	appPublish,
	appRemove,
	appDeploy,
	appLogs,
}

// appStep is a command of app.
type appStep struct {
	name, short string
	flags       []string // of the command, which need the command
	takesArgs   bool     // the command takes the arguments behind --
	takesName   bool     // the command needs only the name of the application
	// run runs the command, and returns what --json prints, or nil.
	run func(*appCall) (any, error)
}

// appCall is a call of app.
type appCall struct {
	*cobra.Command
	source  source.Source
	options apps.Options // of the repository
	args    []string     // behind --
	json    bool
	wants   map[string]bool // the commands of the call

	password string          // of a registry
	secrets  []deploy.Secret // of --secret

	app   *apps.App   // nil before the first use, see application
	known *apps.Needs // nil before the first use, see needs
}

// application returns the application, as init has cloned it.
func (c *appCall) application() (*apps.App, error) {
	if c.app == nil {
		app, err := apps.Open(c.source, c.options)
		if errors.Is(err, apps.ErrKilled) {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		c.take(app)
	}
	return c.app, nil
}

// take keeps the application for later steps, and prints its notes.
func (c *appCall) take(app *apps.App) {
	c.app = app
	for _, note := range app.Notes {
		_, _ = fmt.Fprintf(c.ErrOrStderr(), "millrace: %s\n", note)
	}
}

// quantity returns a number with the noun that follows the number.
func quantity(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// use returns the application, which no init replaces until release is called.
func (c *appCall) use() (app *apps.App, release func(), err error) {
	if app, err = c.application(); err != nil {
		return nil, nil, err
	}
	release, err = app.Use(c.options.Dir)
	return app, release, err
}

// print writes a line, unless --json is given.
func (c *appCall) print(format string, args ...any) {
	if !c.json {
		_, _ = fmt.Fprintf(c.OutOrStdout(), format+"\n", args...)
	}
}

// appFormats are the forms of configuration files besides the server's own.
func appFormats() (formats []apps.Format) {
	for _, s := range compat.Styles {
		if s.Application != nil {
			formats = append(formats, *s.Application)
		}
	}
	return formats
}

const appExamples = `  millrace app --config 'https://git.example.org/team/app|service/millrace.yaml' init build run
  millrace app --config git@git.example.org:team/app.git@v1.2 init run -- --http 127.0.0.1:8080
  millrace app --config file:///srv/git/app.git@main init --json
  millrace app --config ./app run
  millrace app --config ./app --image registry.example.org/team/app:v1 package publish
  millrace app --config ./app --target root@192.0.2.7,root@192.0.2.8 package deploy`

func appCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "app --config REPO{@BRANCH|@SHA}|FILE COMMAND... [-- ARG...]",
		Short:   "Clone, build, test, run, pack, publish and deploy an application from a Git repository",
		Example: appExamples,
		Args:    wrongUsage(beforeDash(cobra.MinimumNArgs(1))),
	}
	flags := c.Flags()
	var steps []appStep
	known := map[string]bool{}
	for _, add := range appSteps {
		step := add(flags)
		flags.VisitAll(func(f *pflag.Flag) {
			if !known[f.Name] {
				known[f.Name], step.flags = true, append(step.flags, f.Name)
			}
		})
		steps = append(steps, step)
	}
	c.Long = `Clone, build, test, run, pack, publish and deploy an application from a Git repository. COMMAND is one or
more of the commands below, which run in this order:

` + appStepList(steps) + `
REPO is https://HOST/PATH, ssh://USER@HOST/PATH, USER@HOST:PATH, file:///PATH, or a folder, which is used in place. @
adds a branch, a tag, a full name such as refs/heads/main, or a commit. FILE is the path of the configuration file in
REPO: ` + strings.Join(appFileNames(), " or ") + ` by default. docs/apps.md has the details.

MILLRACE_GIT_TOKEN is the password or token for https. SSH uses the agent of SSH_AUTH_SOCK and the keys of --ssh-key
and --add-ssh-key; the host must be in the known hosts.`
	c.SetHelpFunc(appHelp(steps))
	config := flags.StringP("config", "c", "", "the application: REPO{@BRANCH|@SHA}|path/to/config.yaml")
	asJSON := flags.Bool("json", false, "as JSON, a document for each command")
	fetch := appFetchFlags(flags)
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, s := range steps {
			if !slices.Contains(args, s.name) {
				names = append(names, s.name+"\t"+s.short)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		args, behind := atDash(c, args)
		wanted, err := appWanted(steps, args)
		if err != nil {
			return err
		}
		if err := appIgnored(c.Flags(), steps, wanted, behind); err != nil {
			return err
		}
		s, err := appSource(c.Flags(), wanted, *config)
		if err != nil {
			return usagef("--config: %w", err)
		}
		call := &appCall{Command: c, source: s, args: behind, json: *asJSON, wants: map[string]bool{}}
		for _, step := range wanted {
			call.wants[step.name] = true
		}
		if call.options, err = fetch(); err != nil {
			return err
		}
		if err := call.takePassword(); err != nil {
			return usagef("--registry-password: %w", err)
		}
		if err := call.takeSecrets(); err != nil {
			return usagef("--secret: %w", err)
		}
		for _, step := range wanted {
			result, err := step.run(call)
			if err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
			if call.json && result != nil {
				if err := writeJSON(c.OutOrStdout(), result); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return c
}

// appSource reads --config, which may be missing if all wanted steps need only the name of the application.
func appSource(flags *pflag.FlagSet, wanted []appStep, config string) (source.Source, error) {
	if config != "" {
		return source.Parse(config)
	}
	for _, step := range wanted {
		if !step.takesName {
			return source.Source{}, errors.New("is missing: want REPO{@BRANCH|@SHA}|path/to/config.yaml, or a folder")
		}
	}
	if flags.Lookup("name").Value.String() == "" {
		return source.Source{}, errors.New("is missing: want the application, or --name NAME in place of --config")
	}
	return source.Source{}, nil
}

func appStepList(steps []appStep) string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&b, "  %-9s%s\n", s.name, s.short)
	}
	return b.String()
}

// appFetchSteps are the commands that read the flags of appFetchFlags.
var appFetchSteps = map[string][]string{
	"ssh-key": appSSHSteps, "add-ssh-key": appSSHSteps, "known-hosts": appSSHSteps,
	"timeout": {"init", "build"}, "max-size": {"init", "build"}, "allow-private": {"init", "build"},
	"allow-http": {"init"},
}

var appSSHSteps = []string{"init", "remove", "deploy", "logs"}

// appHelp prints help. Help of commands of app, as in app build --help, has only the flags of these commands.
func appHelp(steps []appStep) func(*cobra.Command, []string) {
	return func(c *cobra.Command, args []string) {
		asked := slices.DeleteFunc(slices.Clone(steps), func(s appStep) bool { return !slices.Contains(args, s.name) })
		if len(asked) > 0 {
			c.Long = appStepList(asked) + "\nThe flags are those of this call. millrace app --help describes " +
				"REPO and lists all commands and flags."
			c.Example = ""
			c.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = f.Hidden || !appReads(steps, asked, f.Name) })
		}
		c.Root().HelpFunc()(c, args)
	}
}

// appReads reports whether one of the asked commands reads a flag. Flags of no command are for all commands.
func appReads(steps, asked []appStep, flag string) bool {
	reads := func(s appStep) bool {
		return slices.Contains(s.flags, flag) || slices.Contains(appFetchSteps[flag], s.name)
	}
	return slices.ContainsFunc(asked, reads) || !slices.ContainsFunc(steps, reads)
}

func appFileNames() (names []string) {
	for _, f := range append(appFormats(), apps.Millrace) {
		names = append(names, f.File)
	}
	return names
}

// appWanted returns the steps named by args, in the order of steps.
func appWanted(steps []appStep, args []string) (wanted []appStep, err error) {
	var names []string
	for _, s := range steps {
		names = append(names, s.name)
		if slices.Contains(args, s.name) {
			wanted = append(wanted, s)
		}
	}
	for _, word := range args {
		if !slices.Contains(names, word) {
			return nil, usagef("%q is not a command of app: there are %s", word, strings.Join(names, ", "))
		}
	}
	return wanted, nil
}

// appIgnored refuses flags and arguments that none of the wanted steps reads.
func appIgnored(flags *pflag.FlagSet, steps, wanted []appStep, behind []string) (err error) {
	takesArgs := func(s appStep) bool { return s.takesArgs }
	if len(behind) > 0 && !slices.ContainsFunc(wanted, takesArgs) {
		return usagef("%q behind -- is for the command %s: add the command, or leave the argument out", behind[0],
			steps[slices.IndexFunc(steps, takesArgs)].name)
	}
	flags.Visit(func(f *pflag.Flag) {
		has := func(s appStep) bool { return slices.Contains(s.flags, f.Name) }
		var names []string
		for _, s := range steps {
			if has(s) {
				names = append(names, s.name)
			}
		}
		if len(names) > 0 && !slices.ContainsFunc(wanted, has) && err == nil {
			err = usagef("--%s: is for the command %s: add the command, or leave the flag out", f.Name,
				strings.Join(names, " or "))
		}
	})
	return err
}

// appFetchFlags adds the flags of the repository. The returned function reads the flags, and removes the variables with
// secrets from the environment.
func appFetchFlags(flags *pflag.FlagSet) func() (apps.Options, error) {
	keyFiles := flags.StringArray("ssh-key", nil, "file with a private key for SSH; may be repeated")
	keys := flags.StringArray("add-ssh-key", nil,
		"NAME:VARIABLE: a private key for SSH in a variable; it stays in memory; may be repeated")
	known := flags.StringArray("known-hosts", nil,
		"file with keys of hosts (default ~/.ssh/known_hosts, /etc/ssh/ssh_known_hosts); may be repeated")
	timeout := flags.Duration("timeout", source.DefaultTimeout, "time limit of a clone, and of each downloaded file")
	size := flags.String("max-size", "1GiB", "size limit of a clone (bytes received, and bytes of the files), and of "+
		"each downloaded file")
	http := flags.Bool("allow-http", false, "http:// to other machines, without encryption")
	private := flags.Bool("allow-private", false,
		"let submodules and redirects of a remote repository name files and private addresses, and downloaded files "+
			"private addresses")
	return func() (o apps.Options, err error) {
		o.Formats = appFormats()
		if o.Fetch, err = source.FromEnv(*keys); err != nil {
			return o, usagef("--add-ssh-key: %w", err)
		}
		for _, file := range *keyFiles {
			k, err := sshclient.ReadKey(file)
			if err != nil {
				return o, fmt.Errorf("--ssh-key: %w", err)
			}
			o.Fetch.Keys = append(o.Fetch.Keys, k)
		}
		for _, file := range *known {
			if _, err := os.Stat(file); err != nil {
				return o, fmt.Errorf("--known-hosts: %w", err)
			}
		}
		if *timeout <= 0 {
			return o, usagef("--timeout: %s is not a duration above 0", *timeout)
		}
		if o.Fetch.MaxSize, err = source.ParseSize(*size); err != nil {
			return o, usagef("--max-size: %w", err)
		}
		o.Fetch.KnownHosts, o.Fetch.Timeout, o.Fetch.AllowHTTP, o.Fetch.AllowPrivate = *known, *timeout, *http, *private
		return o, nil
	}
}
