package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/pflag"

	"millrace/apps"
	"millrace/apps/build"
	"millrace/apps/modelsource"
	"millrace/apps/program"
	"millrace/apps/source"
	"millrace/config"
	"millrace/internal/child"
	"millrace/internal/setting"
)

// buildFlags are the flags of build that other commands read, too.
var buildFlags = []string{"python", "wheels", "installer", "system-site-packages", "pass", "max-memory", "max-disk",
	"max-processes"}

// appBuild makes the environment of the application, and runs the setup commands.
func appBuild(flags *pflag.FlagSet) appStep {
	flags.String("python", "", "build, test, package: Python interpreter: a path, or a name in PATH (default python3)")
	flags.String("installer", "auto", "build, test: auto (uv if in PATH, pip for --system-site-packages), pip or uv")
	flags.String("wheels", "", "build, test: folder with packages, in place of the index and without network")
	flags.Bool("system-site-packages", false,
		"build, test: let the environment have the packages of the interpreter's system")
	flags.StringArray("pass", nil,
		"build, test: name of a variable for installers, commands and tests; may be repeated")
	flags.Bool("allow-network", false, "build, test: network for setup commands and tests")
	flags.Bool("allow-system-packages", false, "build: let root install the Debian packages of the application")
	flags.Bool("rebuild", false, "build: make the environment afresh, and repeat the setup commands")
	flags.Duration(strings.TrimPrefix(build.LimitName, "--"), 30*time.Minute,
		"build: time limit of each installation and command")
	limits := program.Defaults()
	text := func(name, value, usage string) { flags.String(strings.TrimPrefix(name, "--"), value, usage) }
	text(program.FlagMemory, "",
		"build, test: limit of the memory of each installation, command and suite of tests, with "+
			"their processes (default half of the machine's memory)")
	text(program.FlagDisk, units.BytesSize(float64(limits.Disk)),
		"build, test: limit of the bytes that each of them adds to the disk")
	flags.Int(strings.TrimPrefix(program.FlagProcesses, "--"), limits.Processes,
		"build, test: limit of the processes and threads of each of them")
	return appStep{name: "build", short: "make the Python environment, and run the setup commands",
		run: func(c *appCall) (any, error) { return c.build() }}
}

// appBuildResult is what build prints as JSON.
type appBuildResult struct {
	Command string `json:"command"`
	*build.Result
}

func (c *appCall) build() (*appBuildResult, error) {
	o, err := c.buildOptions()
	if err != nil {
		return nil, err
	}
	app, err := c.application()
	if err != nil {
		return nil, err
	}
	needs, err := c.needs(app)
	if err != nil {
		return nil, err
	}
	if err := c.adopt(); err != nil {
		return nil, err
	}
	bar := newProgress(c.ErrOrStderr())
	defer bar.end()
	if bar.overwrite {
		o.OnLine = func(step, line string) { bar.line(clipLine(step + ": " + line)) }
		o.Sources.Progress = sourceProgress(bar)
	}
	o.OnSystem = func(missing []string) {
		_, _ = fmt.Fprintf(c.ErrOrStderr(), "millrace: installs the system packages %s\n", strings.Join(missing, ", "))
	}
	var result *build.Result
	if err := app.Step(c.options.Dir, func() (err error) {
		result, err = build.Build(c.Context(), app, needs, o)
		return err
	}); err != nil {
		return nil, err
	}
	bar.end()
	switch env := result.Environment; {
	case env == nil:
		c.print("%s has no requirements: no environment is needed", app.Name)
	case result.Made:
		c.print("made the environment %s: Python %s, %s by %s", env.Path, env.Python,
			quantity(len(env.Packages), "package", "packages"), env.Installer)
	default:
		c.print("the environment %s is up to date", env.Path)
	}
	for _, name := range result.Files {
		c.print("downloaded %s", name)
	}
	for _, name := range result.Setup {
		c.print("ran %s", name)
	}
	return &appBuildResult{"build", result}, nil
}

// adopt ends the processes of programs that leave their group with the programs.
func (c *appCall) adopt() error {
	if err := child.Adopt(c.Context()); err != nil {
		return fmt.Errorf("this machine does not tell which processes a program has started, so that programs could "+
			"outlive their step: %w", err)
	}
	return nil
}

// clipLine shortens a line of a program for the terminal, and removes control characters.
func clipLine(line string) string {
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, line)
	if r := []rune(line); len(r) > 78 {
		return string(r[:77]) + "…"
	}
	return line
}

func (c *appCall) buildOptions() (o build.Options, err error) {
	flags := c.Flags()
	text := func(name string) string { return flags.Lookup(name).Value.String() }
	is := func(name string) bool { return text(name) == "true" }
	o = build.Options{Dir: c.options.Dir, Python: text("python"), Tool: text("installer"), Wheels: text("wheels"),
		SystemSite: is("system-site-packages"), Network: is("allow-network"),
		SystemInstall: is("allow-system-packages"), Rebuild: is("rebuild"), Relock: c.wants["lock"]}
	fetch := c.options.Fetch
	o.OnNote = func(note string) { _, _ = fmt.Fprintf(c.ErrOrStderr(), "millrace: %s\n", note) }
	o.Sources = modelsource.Options{Foreign: true, MaxSize: fetch.MaxSize, Timeout: fetch.Timeout,
		Private: fetch.AllowPrivate}
	if o.Python == "" {
		o.Python = "python3"
	}
	if !slices.Contains(build.Tools, o.Tool) {
		return o, usagef("--installer: %q is not one of %s", o.Tool, strings.Join(build.Tools, ", "))
	}
	if o.Pass, err = flags.GetStringArray("pass"); err != nil {
		return o, err
	}
	if err := program.CheckPass(o.Pass); err != nil {
		return o, usagef("--pass: %w", err)
	}
	if o.Limits, err = c.limits(); err != nil {
		return o, err
	}
	name := strings.TrimPrefix(build.LimitName, "--")
	if o.Limit, err = flags.GetDuration(name); err == nil && o.Limit <= 0 {
		err = usagef("--%s: %s is not a duration above 0", name, o.Limit)
	}
	return o, err
}

// limits returns the limits of programs of the application.
func (c *appCall) limits() (l program.Limits, err error) {
	for name, to := range map[string]*int64{program.FlagMemory: &l.Memory, program.FlagDisk: &l.Disk} {
		text := c.Flags().Lookup(strings.TrimPrefix(name, "--")).Value.String()
		if text == "" {
			continue
		}
		if *to, err = source.ParseSize(text); err != nil {
			return l, usagef("%s: %w", name, err)
		}
	}
	if l.Processes, err = c.Flags().GetInt(strings.TrimPrefix(program.FlagProcesses, "--")); err == nil &&
		l.Processes <= 0 {
		err = usagef("%s: %d is not above 0", program.FlagProcesses, l.Processes)
	}
	return l, err
}

// needs returns what the configuration file of the application says of its needs.
func (c *appCall) needs(app *apps.App) (needs *apps.Needs, err error) {
	if c.known != nil {
		return c.known, nil
	}
	if app.Format == apps.Millrace.Name {
		needs, err = millraceNeeds(app.File)
	} else {
		formats := appFormats()
		i := slices.IndexFunc(formats, func(f apps.Format) bool { return f.Name == app.Format })
		needs, err = formats[i].Needs(app.File)
	}
	c.known = needs
	return needs, err
}

func millraceNeeds(file string) (*apps.Needs, error) {
	cfg, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	s, _ := setting.Part[build.Settings](cfg.Parts)
	return s.Needs(file), nil
}

// environment returns the environment of build, nil without; nobody removes the environment until release is called.
func (c *appCall) environment(app *apps.App) (env *build.Environment, release func(), err error) {
	needs, err := c.needs(app)
	if err != nil {
		return nil, func() {}, err
	}
	return build.Open(app, needs, c.options.Dir)
}
