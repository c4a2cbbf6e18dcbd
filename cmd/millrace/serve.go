package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/config"
	"millrace/examples/spotter"
	"millrace/internal/child"
	"millrace/internal/setting"
	"millrace/internal/textfile"
	"millrace/server"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/workers"
)

const serveExamples = `  millrace serve --model find=motion
  millrace serve motion
  millrace serve ./service.py --watch
  millrace serve --config millrace.yaml --auth-keys keys.yaml --http 0.0.0.0:8000 --hosts cam.example.org
  millrace serve --model cost=delay,fixed=5ms,per_item=1ms,batching.max_size=8,instances=2`

func serveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve [SOURCE] [-- ARG...]",
		Short: "Run the server",
		Long: `Run the server until SIGTERM or SIGINT. The server then drains: new streams are refused, waiting
frames are ended, and frames in flight are answered. When the server is ready, serve prints a line with the addresses.

SIGHUP reopens the log file and the audit log after their rotation, and reads the configuration again: models,
server streams, hosts, origins, quotas and the log's level. The log names each change that needs a restart.

Each setting is a key of the configuration file, a flag, and a variable, such as MILLRACE_HTTP. A flag overrides
a variable, and a variable overrides the file.

An address that other machines can reach needs credentials of clients: auth.keys (see millrace keys), auth.users,
or an api_key of 16 characters or more.
--insecure serves without credentials.

SOURCE is a file, a folder, an address or a kind of worker, with settings of the model behind commas, as in
--model. The model is named after SOURCE. The routes of a program, such as service.py, are also at the root (see
--root) when the program is the only model. The arguments of the program follow on --.`,
		Example: serveExamples,
		Args:    wrongUsage(beforeDash(cobra.MaximumNArgs(1))),
	}
	return serveWith(c, false)
}

const runExamples = `  millrace run ./service.py
  millrace run ./service.py --watch
  millrace run ./app.py --http 127.0.0.1:8080 --replicas 4
  millrace run ./app.py -- --timeout 5000`

func runCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "run SOURCE [-- ARG...]",
		Short: "Run the server with a single program and the program's routes at the root",
		Long: `Run the server with a single program, such as service.py. The routes of the program are at the root, beside the
routes of the server, and at /apps/NAME/. The arguments of the program follow on --. When all workers of the
program have failed, the server ends with the reason. Otherwise the command is millrace serve SOURCE.`,
		Example: runExamples,
		Args:    wrongUsage(beforeDash(cobra.ExactArgs(1))),
	}
	return serveWith(c, true)
}

// beforeDash checks the arguments in front of --.
func beforeDash(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		args, _ = atDash(c, args)
		return check(c, args)
	}
}

// atDash splits arguments at --. Without --, behind is nil.
func atDash(c *cobra.Command, args []string) (before, behind []string) {
	if n := c.ArgsLenAtDash(); n >= 0 {
		return args[:n], args[n:]
	}
	return args, nil
}

// serveWith makes c a command that runs the server; alone: only with the program in the argument, without other
// models.
func serveWith(c *cobra.Command, alone bool) *cobra.Command {
	settings := configFlags(c.Flags())
	foldSettings(c)
	c.Flags().StringVar(&settings.python, "python", "",
		"interpreter of SOURCE, and of a file that replaces it (models swap): a path or a name in PATH")
	settings.alone = alone
	c.RunE = func(c *cobra.Command, args []string) error {
		args, settings.args = atDash(c, args)
		if len(args) == 1 {
			if err := runInstead(args[0], settings.args); err != nil {
				return err
			}
		}
		cfg, err := settings.config(args)
		if err != nil {
			return err
		}
		again := func() (server.Config, error) { return settings.config(args) }
		_, err = serveConfig(c, cfg, again, func(err error) error { return settings.withFlagNames(cfg, err) })
		return err
	}
	return c
}

// serveConfig runs a server until c's context ends. again reads the configuration again after SIGHUP; nil = no
// configuration file. named puts the user's words in place of settings in errors. The returned server has ended; nil
// = no server was made.
func serveConfig(c *cobra.Command, cfg server.Config, again func() (server.Config, error),
	named func(error) error) (*server.Server, error) {
	j := serving{cfg: cfg, reloadConfig: again, named: named}
	return j.run(c)
}

// serving is a server that a command runs, see serveConfig.
type serving struct {
	cfg          server.Config
	reloadConfig func() (server.Config, error)
	named        func(error) error
	// work is called with the ready server in place of the ready line. The server ends when work has returned, and ctx
	// ends with the command and with the server. nil = the server ends with the command.
	work func(ctx context.Context, s *server.Server) error
}

func (j *serving) run(c *cobra.Command) (*server.Server, error) {
	cfg, named := j.cfg, j.named
	if err := setting.Join(server.Exposed(c.Context(), cfg)...); err != nil {
		return nil, named(err)
	}
	cfg.Clip, cfg.OwnProcess = spotter.Clip, true
	rotate := make(chan os.Signal, 1)
	signal.Notify(rotate, syscall.SIGHUP)
	defer signal.Stop(rotate)
	adoption, leave := context.WithCancel(context.Background())
	defer leave()
	lacks := child.Adopt(adoption) // before a program is started
	s, err := server.New(cfg)
	hideFromPrograms(&cfg) // child processes all start later
	if err != nil {
		return nil, named(err)
	}
	if lacks != nil {
		s.Log().Warn("processes that programs start in sessions of their own are not ended with them", "error", lacks)
	}
	reloads := make(chan struct{})
	go func() {
		defer close(reloads)
		reload(c.Context(), s, rotate, j.reloadConfig, named)
	}()
	serving, stop := context.WithCancelCause(context.WithoutCancel(c.Context()))
	defer stop(nil)
	context.AfterFunc(c.Context(), func() {
		select {
		case <-s.Ready():
			if j.work != nil {
				return // work stops the server
			}
		default:
		}
		select { // a reload writes its record before the audit log is closed
		case <-reloads:
		case <-time.After(min(time.Second, cfg.WithDefaults().Drain)):
		}
		stop(context.Cause(c.Context()))
	})
	done := make(chan error, 1)
	go func() { done <- s.Run(serving) }()
	select {
	case err := <-done:
		return s, named(err)
	case <-s.Ready():
	}
	if j.work != nil {
		return s, j.during(c, s, done, stop)
	}
	if _, err := fmt.Fprintln(c.OutOrStdout(), readyLine(s)); err != nil {
		fmt.Fprintf(os.Stderr, "millrace: %v\n", err)
	}
	if cfg.TLS.SelfSigned {
		fmt.Fprint(c.ErrOrStderr(), certificateHelp(s))
	}
	return s, <-done
}

// during runs work, and then ends the server.
func (j *serving) during(c *cobra.Command, s *server.Server, done <-chan error, stop context.CancelCauseFunc) error {
	working, end := context.WithCancel(c.Context())
	defer end()
	worked := make(chan error, 1)
	go func() { worked <- j.work(working, s) }()
	select {
	case err := <-done: // before the command
		end()
		return errors.Join(j.named(err), <-worked)
	case err := <-worked:
		stop(context.Cause(c.Context()))
		<-done // the server logs models that take longer; their tasks were given back
		return err
	}
}

// reload reopens the log files and applies the present configuration at each signal, until ctx ends.
func reload(ctx context.Context, s *server.Server, signals <-chan os.Signal, again func() (server.Config, error),
	named func(error) error) {
	for {
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		err := s.ReopenLog()
		var wrong error
		if again != nil {
			var cfg server.Config
			if cfg, wrong = again(); wrong == nil {
				wrong = named(s.Reload(ctx, cfg))
			}
			if wrong != nil {
				s.Log().Error("not all of the configuration was taken as it is now", "error", wrong)
			}
		}
		s.AuditSignal(errors.Join(err, wrong))
		if err != nil {
			fmt.Fprintf(os.Stderr, "millrace: %v\n", err)
		}
	}
}

// certificateHelp lists the addresses of the console and the fingerprint to compare,
// because browsers do not trust a self-signed certificate.
func certificateHelp(s *server.Server) string {
	var b strings.Builder
	host, port, _ := net.SplitHostPort(s.Addr("http"))
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		for _, a := range server.Addresses() {
			if !net.ParseIP(a).IsLoopback() {
				fmt.Fprintf(&b, "  https://%s/console/\n", net.JoinHostPort(a, port))
			}
		}
	} else {
		fmt.Fprintf(&b, "  %s/console/ (other devices cannot reach it: serve with --http 0.0.0.0:%s and --auth-keys "+
			"FILE)\n", s.URL("http"), port)
	}
	return "Open one of these, and accept the certificate if its SHA-256 fingerprint is\n  " + s.Fingerprint() + "\n" +
		b.String()
}

// readyLine returns the message that the server is ready, with the server's addresses.
func readyLine(s *server.Server) string {
	parts := []string{"millrace is ready:"}
	for _, l := range s.Listeners() {
		if l.URL != "" {
			parts = append(parts, l.URL)
		}
	}
	return strings.Join(parts, " ")
}

// checkReachable returns an error if all listeners are off, since no client could reach the models. Only programs
// that embed the server may turn every listener off.
func checkReachable(cfg server.Config) error {
	for _, l := range server.Listeners(cfg) {
		if l.URL != "" {
			return nil
		}
	}
	return stream.Errorf(stream.InvalidArgument, "http", "and grpc are both off: nothing would be served")
}

// flagSettings holds the flags that set the configuration.
type flagSettings struct {
	flags  *pflag.FlagSet
	file   string
	models []string
	source string   // the name of the model made from the argument SOURCE
	python string   // the interpreter of SOURCE; "" = not given
	alone  bool     // SOURCE is a program and the only model
	args   []string // of the program; nil = none are given

	shape textfile.Shape // of the last file read

	secrets map[string]string // variables removed from the environment at the server's start
}

// lookup is os.LookupEnv, and also finds variables removed after the first call of config.
func (f *flagSettings) lookup(name string) (string, bool) {
	v, ok := os.LookupEnv(name)
	if ok && slices.Contains(config.SecretEnv(), name) {
		if f.secrets == nil {
			f.secrets = map[string]string{}
		}
		f.secrets[name] = v
	} else if !ok {
		v, ok = f.secrets[name]
	}
	return v, ok
}

// serverSettings lists the settings of the server. Several commands have a flag for each setting.
var serverSettings = sync.OnceValue(config.Settings)

// configFlags adds a flag for each setting.
func configFlags(flags *pflag.FlagSet) *flagSettings {
	f := &flagSettings{flags: flags}
	flags.StringVar(&f.file, "config", "", "configuration file ("+config.EnvConfig+")")
	flags.StringArrayVar(&f.models, "model", nil, "a model, as NAME=SOURCE[,key=value...]; may be repeated ("+
		config.EnvModels+")")
	for _, s := range serverSettings() {
		doc := s.Text() + " (" + s.Env + ")"
		switch {
		case s.Switch:
			flags.Bool(s.Flag, false, doc)
		case s.List:
			flags.StringSlice(s.Flag, nil, doc)
		default:
			flags.String(s.Flag, "", doc)
		}
	}
	return f
}

// config composes the configuration from the file, the variables, the flags and the argument SOURCE.
func (f *flagSettings) config(args []string) (cfg server.Config, err error) {
	file, from := f.file, "--config"
	if !f.flags.Changed("config") {
		file, from = os.Getenv(config.EnvConfig), config.EnvConfig
	}
	if file != "" {
		cfg, f.shape, err = config.LoadAgain(context.Background(), file, f.shape)
	} else if f.flags.Changed("config") {
		return cfg, usagef("--config: is empty: want a file")
	}
	var wrongText *coded.Error
	switch {
	case errors.As(err, &wrongText): // the error names the file and the line
		return cfg, err
	case err != nil:
		return cfg, fmt.Errorf("%s: %w", from, err)
	}
	for _, name := range config.UnknownEnv(os.Environ()) {
		fmt.Fprintf(os.Stderr, "millrace: %s is not a setting and was ignored\n", name)
	}
	if err := cfg.Env(f.lookup); err != nil {
		return cfg, err
	}
	var wrong []error
	for _, s := range serverSettings() {
		flag := f.flags.Lookup(s.Flag)
		if !flag.Changed {
			continue
		}
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if err := cfg.Set(s.Path, values...); err != nil {
			wrong = append(wrong, err)
		}
	}
	for _, err := range setting.Split(cfg.AddModels(f.models...)) {
		wrong = append(wrong, coded.RenameFunc(err, func(field string) string {
			return strings.TrimSuffix("--model "+field, " model")
		}))
	}
	if len(wrong) > 0 {
		return cfg, usageError{f.withFlagNames(cfg, setting.Join(wrong...))}
	}
	if len(args) == 1 {
		m, err := f.sourceModel(args[0])
		if err != nil {
			return cfg, usageError{err}
		}
		f.source, cfg.Models = m.Name, append(cfg.Models, m)
		if err := f.root(&cfg, m); err != nil {
			return cfg, err
		}
	} else if f.args != nil {
		return cfg, usagef("--: what follows are arguments of SOURCE, which is missing")
	} else if f.python != "" {
		return cfg, usagef("--python: is the interpreter of SOURCE, which is missing: for a model of --model, write "+
			"NAME=FILE.py,python=%s", f.python)
	}
	cfg.Version = version
	cfg = cfg.WithDefaults()
	return cfg, f.withFlagNames(cfg, setting.Join(cfg.Validate(), checkReachable(cfg)))
}

// sourceModel returns the model of the argument SOURCE[,key=value...], with the interpreter of --python and the
// arguments of the program.
func (f *flagSettings) sourceModel(spec string) (m workers.Config, err error) {
	if m, err = config.ParseSource(spec); err != nil {
		return m, err
	}
	if f.python != "" {
		err = f.parameter(&m, "--python", "python", f.python, "interpreter")
	}
	if err == nil && len(f.args) > 0 {
		var text []byte
		if text, err = json.Marshal(f.args); err == nil {
			err = f.parameter(&m, "--", "args", string(text), "arguments")
		}
	}
	return m, err
}

// parameter sets a parameter of a model's kind from a flag.
func (f *flagSettings) parameter(m *workers.Config, flag, name, value, what string) error {
	kindName, _, err := workers.KindOf(m.Source)
	if err != nil {
		return nil // reported with the other errors
	}
	kind, _ := workers.Lookup(kindName)
	if _, ok := kind.Table().Find(name); !ok {
		return usagef("%s: %q takes no %s: it is a model of kind %s", flag, m.Source, what, kindName)
	}
	if _, twice := m.Params[name]; twice {
		return usagef("%s: SOURCE has %s already", flag, name)
	}
	if m.Params == nil {
		m.Params = stream.Params{}
	}
	m.Params[name] = value
	return nil
}

// root puts the routes of the program m at the root, if m is the only model.
func (f *flagSettings) root(cfg *server.Config, m workers.Config) error {
	kind, _, err := workers.KindOf(m.Source)
	program := err == nil && server.IsProgram(kind)
	others := len(cfg.Models) > 1 || cfg.Repository.Dir != ""
	switch {
	case f.alone && err == nil && !program:
		return usagef("run: %q is a model of kind %s, not a program: use millrace serve", m.Source, kind)
	case f.alone && others:
		return usagef("run: serves one program alone, and the configuration has other models: use millrace serve")
	case program && !others && cfg.Programs.Root == "":
		cfg.Programs.Root = m.Name
		configureByProgram(cfg, &cfg.Models[len(cfg.Models)-1], f.args)
	}
	return nil
}

// withFlagNames replaces names of settings in err by the user's input: flags, --model, or the argument SOURCE.
func (f *flagSettings) withFlagNames(cfg server.Config, err error) error {
	names := map[string]string{}
	for _, s := range serverSettings() {
		if f.flags.Changed(s.Flag) {
			names[s.Path] = "--" + s.Flag
		}
	}
	given := map[string]string{} // by the names of models
	for _, spec := range f.models {
		name, _, _ := strings.Cut(spec, "=")
		given[strings.TrimSpace(name)] = "--model " + strings.TrimSpace(name)
	}
	var errs []error
	for _, err := range setting.Split(err) {
		errs = append(errs, coded.RenameFunc(err, func(field string) string {
			if name := names[field]; name != "" {
				return name
			}
			for i, m := range cfg.Models {
				rest, ok := strings.CutPrefix(field, fmt.Sprintf("models[%d]", i))
				switch name := given[m.Name]; {
				case !ok:
				case name != "":
					return name + rest
				case m.Name == f.source:
					return strings.TrimPrefix(strings.Replace(rest, ".source", "SOURCE", 1), ".")
				}
			}
			return field
		}))
	}
	return setting.Join(errs...)
}
