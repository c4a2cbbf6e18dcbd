package ssf

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"millrace/compat/style"
	"millrace/config"
	"millrace/internal/child"
	"millrace/stream"
	"millrace/tracing"
	"millrace/workers"
	"millrace/workers/process"
)

var command = style.Command{
	Use:   "ssf [OPTION...] COMMAND...",
	Short: "Serve an application written for Simple Server Framework",
	Long: `Serve an application written for Simple Server Framework, with the options of the framework's command gc-ssf.
The commands are init (clones a repository afresh into .repo/NAME, and removes the files of build), build (calls the
application's build), run, package, test, publish and deploy (millrace app has more options for the last four). The
exit status is the result code of gc-ssf. Further settings of this server are variables, such as MILLRACE_ORIGINS:
millrace config --all lists them. docs/migrating.md has the differences.`,
	Example: `  millrace ssf --config ssf_config.yaml init build run
  millrace ssf run -p 8100 --replicate-application 2 --key secret
  millrace ssf --config app/ssf_config.yaml run --api grpc --port 8200
  millrace ssf --config 'https://git.example.org/team/app@main|ssf_config.yaml' init build run`,
	Begin: begin,
}

// begin adds the options, and returns the function that runs the commands. An option may have several values, and
// commands may be anywhere, so that Arguments sorts the arguments before they are parsed.
func begin(flags *pflag.FlagSet) func(*style.Call) error {
	options := Flags(flags)
	return func(c *style.Call) error {
		words, err := Arguments(flags, c.Args)
		if err != nil {
			return style.UsageError{Err: err}
		}
		if helped, err := c.Parse(words.Flags); helped || err != nil {
			return err
		}
		if err := options.Check(flags.Args(), words); err != nil {
			return style.UsageError{Err: err}
		}
		if len(options.Commands) == 0 {
			return usagef("ssf: has no command: want init, build, run, package, test, publish or deploy")
		}
		return logged(c, options)
	}
}

// Variables of log.format, with which the log has the form of this server, and of log.level.
const (
	envFormat = "MILLRACE_LOG_FORMAT"
	envLevel  = "MILLRACE_LOG_LEVEL"
)

// logged runs the commands with a log in the form of Simple Server Framework.
func logged(c *style.Call, o *Options) error {
	if os.Getenv(envFormat) == "" {
		out := levels[o.StdoutLogLevel]
		if text, set := os.LookupEnv(envLevel); set && !o.Given("stdout-log-level") {
			var err error
			if out, err = tracing.ParseLevel(text); err != nil {
				return usagef("%s: %w", envLevel, err)
			}
		}
		o.log = openLog(c.Out, c.Err, out, levels[o.FileLogLevel])
		defer o.log.close()
	}
	if len(o.Unknown) > 0 {
		o.log.print(slog.LevelWarn, "Ignoring unknown arguments %s", pythonList(o.Masked))
	}
	if len(o.Further) > 0 {
		o.log.print(slog.LevelWarn, "Ignoring unknown SSF commands %s", pythonList(o.Logged))
	}
	err := run(c, o)
	status := 0
	if err != nil {
		status = 1
		var exit style.StatusError
		if errors.As(err, &exit) {
			status = exit.Status
		}
		o.log.note(slog.LevelError, "%v", err) // the command prints the error
	}
	o.log.note(slog.LevelInfo, "Exit with %d", status)
	return err
}

// pythonList returns texts as Python prints a list.
func pythonList(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = "'" + text + "'"
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// hidden is written to the log in place of a value, which may be a secret of the application.
const hidden = "***"

// masked returns an option of the application without its value.
func masked(option string) string {
	name, _, has := strings.Cut(option, "=")
	switch {
	case !strings.HasPrefix(option, "--") && len(name) > 2:
		return name[:2] + hidden
	case has:
		return name + "=" + hidden
	}
	return name
}

func usagef(format string, args ...any) error {
	return style.UsageError{Err: fmt.Errorf(format, args...)}
}

// run runs the commands.
func run(c *style.Call, o *Options) error {
	from, err := o.locate(c)
	if err != nil {
		return err
	}
	app, err := readApplication(o)
	if err != nil {
		return err
	}
	var first []string
	later := map[string]func(*style.Call, *Options) error{"run": func(c *style.Call, o *Options) error {
		return app.run(c, o, from)
	}, "package": app.pack, "test": app.test, "publish": app.publish, "deploy": app.deploy}
	for _, step := range o.Commands {
		if later[step] == nil {
			first = append(first, step)
		}
	}
	if len(first) > 0 {
		if err := from.step(func() error { return app.runStep(c, o, "build", first, nil) }); err != nil {
			return err
		}
	}
	for _, step := range o.Commands[len(first):] {
		if err := later[step](c, o); err != nil {
			return err
		}
	}
	return nil
}

// run serves the application.
func (a *application) run(c *style.Call, o *Options, from origin) error {
	cfg, err := a.server(c, o)
	if err != nil {
		return err
	}
	release, err := from.use()
	if err != nil {
		return err
	}
	defer release()
	o.log.print(slog.LevelInfo, "> ==== Run ====")
	failed, err := c.Serve(cfg)
	if _, refused := resultCode(err); refused && failed == nil {
		o.log.note(slog.LevelError, "Dispatcher failed to start")
		o.log.fails(err)
		failed = err
	}
	if failed != nil && o.StopOnError {
		o.log.print(slog.LevelWarn, "> Stopping server, since the application has failed")
	}
	return withStatus(err, failed)
}

// Exit statuses of Simple Server Framework.
const (
	sshStatus         = 5   // a key for SSH is missing
	registryStatus    = 7   // a registry does not take an image
	gitStatus         = 13  // a repository cannot be cloned
	applicationStatus = 32  // an application that was started fails
	testStatus        = 33  // tests of the application fail
	configStatus      = 34  // the configuration cannot be used
	packagingStatus   = 36  // the application cannot be packed
	grpcStatus        = 155 // gRPC cannot carry what the configuration describes
	deployStatus      = 177 // a host does not run the application
	requirementStatus = 255 // a package is missing
)

// withStatus adds the exit status of run to err, the error that ended the server, or nil. failed is the last failure
// of the application while it was served, or nil.
func withStatus(err, failed error) error {
	if failed != nil {
		if err == nil {
			err = fmt.Errorf("the application has failed while it was served. Its last failure: %w", failed)
		}
		status := applicationStatus
		if code, ok := resultCode(failed); ok {
			status = code
		}
		return style.StatusError{Err: err, Status: status}
	}
	return err
}

// resultCode returns the exit status of Simple Server Framework for the error of a program that could not be started.
// ok is false for other errors.
func resultCode(err error) (code int, ok bool) {
	if kind, ok := process.RefusalKind(err); ok {
		switch n, _ := strconv.Atoi(strings.TrimPrefix(kind, "ssf-")); n {
		case requirementStatus, configStatus, grpcStatus:
			// errors in the configuration are found before the application starts
			return n, true
		}
		return applicationStatus, true // all errors of the application's module and startup
	}
	var exit *child.ExitError
	if errors.As(err, &exit) {
		if exit.Signal == 0 && exit.Code == requirementStatus {
			return requirementStatus, true
		}
		return applicationStatus, true
	}
	return 0, false
}

// isApplicationFailure reports whether an error of the start is a failure of the application's own code, rather than
// an error in its configuration or on this machine.
func isApplicationFailure(err error) bool {
	if kind, ok := process.RefusalKind(err); ok {
		code, is := strings.CutPrefix(kind, "ssf-")
		return kind == "" || is && code != strconv.Itoa(configStatus) && code != strconv.Itoa(grpcStatus)
	}
	var exit *child.ExitError
	return errors.As(err, &exit) || stream.CodeOf(err) == stream.Timeout
}

// application is an application.
type application struct {
	file   string // absolute
	config Section
	id     string
	start  time.Duration // maximum time of the startup
	venv   string        // the folder of its virtual environment; "" = none
}

func readApplication(o *Options) (*application, error) {
	file, err := filepath.Abs(o.Config)
	if err != nil {
		return nil, err
	}
	a := &application{file: file, id: "untitled", start: 10 * time.Minute}
	if a.config, err = Read(file); err != nil {
		err = fmt.Errorf("--config: %w", err)
		if !errors.Is(err, fs.ErrNotExist) {
			err = style.StatusError{Err: err, Status: configStatus}
		}
		return nil, err
	}
	section, _ := a.config.Get("application").(Section)
	if id := section.Get("id"); id != nil {
		a.id = fmt.Sprint(id)
	}
	if n, err := strconv.Atoi(fmt.Sprint(section.Get("startup_timeout"))); err == nil && n > 0 && n <= 86400 {
		a.start = time.Duration(n) * time.Second
	}
	for _, change := range strings.Split(o.ModifyConfig, ";") {
		if field, value, ok := strings.Cut(change, "="); ok && strings.TrimSpace(field) == "application.id" {
			a.id = value
		}
	}
	venv := "ssf-" + a.id + "-venv"
	if _, err := os.Stat(filepath.Join(venv, "bin", "python")); err == nil {
		if a.venv, err = filepath.Abs(venv); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// server returns the configuration of the server that runs the application.
func (a *application) server(c *style.Call, o *Options) (cfg config.Config, err error) {
	for _, name := range config.UnknownEnv(os.Environ()) {
		fmt.Fprintf(os.Stderr, "millrace: %s is not a setting and was ignored\n", name)
	}
	if err := cfg.Env(os.LookupEnv); err != nil {
		return cfg, err
	}
	if len(cfg.Models) > 0 {
		return cfg, usagef("%s: ssf serves one application alone: use millrace serve for several models",
			config.EnvModels)
	}
	at := func(port int) string { return net.JoinHostPort(o.Host, strconv.Itoa(port)) }
	if o.API == GRPC {
		if cfg.GRPC = at(o.Port); tracing.WithMetrics {
			cfg.Metrics.Address = at(next(o.Port))
		}
		if cfg.HTTP == "" {
			cfg.HTTP = config.Off
		}
	} else {
		cfg.HTTP = at(o.Port)
		if cfg.GRPC == "" {
			cfg.GRPC = config.Off
		}
	}
	if o.PrometheusPort != "" {
		cfg.Metrics.Address = net.JoinHostPort(o.Host, o.PrometheusPort)
	}
	if o.PrometheusDisabled && tracing.WithMetrics {
		cfg.Metrics.Address = config.Off
	}
	if tracing.WithMetrics {
		cfg.Parts = withNames(cfg.Parts)
	}
	given := func(name string) bool { return o.Given(name) }
	switch {
	case cfg.Metrics.Separate() && cfg.Metrics.Address != config.Off:
		cfg.Metrics.Path = "/" // at a port of their own, the metrics are at every path
	case given("prometheus-endpoint"):
		cfg.Metrics.Path = "/" + strings.TrimPrefix(o.PrometheusEndpoint, "/")
	}
	if given("prometheus-buckets") {
		cfg.Metrics.Buckets = o.PrometheusBuckets
	}
	if o.log != nil {
		cfg.Records, cfg.Log.Level = records{log: o.log}, tracing.LevelName(o.log.least())
	} else if given("stdout-log-level") {
		cfg.Log.Level = o.Level()
	}
	if given("grpc-max-connections") {
		cfg.Limits.MaxCalls = o.GRPCMaxConnections
	}
	if given("key") {
		cfg.APIKey = o.Key
	}
	if o.EnableSession {
		cfg.Auth.Module = cmp.Or(o.SessionModuleFile, cfg.Auth.Module)
		if cfg.Auth.Sessions = time.Duration(o.SessionTimeout) * time.Second; cfg.Auth.Module == "" {
			return cfg, usagef("--session-authentication-module-file: is missing: want a file in Python with " +
				"authenticate_user(username, password). The default one of Simple Server Framework has a user whose " +
				"password everybody knows")
		}
	}
	if o.EnableSSL {
		cfg.TLS = config.TLS{Cert: o.SSLCertificateFile, Key: o.SSLKeyFile}
	}
	if o.EnableCORS && len(cfg.Origins) == 0 {
		return cfg, usagef("--enable-cors-middleware: list the origins whose pages may use the server: " +
			"MILLRACE_ORIGINS=http://localhost:3000,...")
	}
	m, err := a.model(o, c.Args)
	if err != nil {
		return cfg, err
	}
	cfg.Models = []workers.Config{m}
	cfg.Programs.Root, cfg.Programs.Exit, cfg.Programs.Failure = m.Name, &o.StopOnError, o.StopOnError
	if !o.StopOnError {
		cfg.StartsWithout = isApplicationFailure
	}
	cfg.Version = c.Version
	cfg = cfg.WithDefaults()
	return cfg, cfg.Validate()
}

// next returns the following port; for 0, any free port, next returns 0.
func next(port int) int {
	if port == 0 {
		return 0
	}
	return port + 1
}

// restartsOf returns limits.restarts for --max-allowed-restarts, which counts failures, not restarts: with 2, an
// instance is restarted after the first failure in a row but not after the second. With 1 an instance is never
// restarted, nor with 0; Simple Server Framework with 0 does not start an instance at all.
func restartsOf(failures int) int {
	if failures <= 1 {
		return -1 // 0 is the default of limits.restarts
	}
	return failures - 1
}

// watchdogPause gives an application time to recover after its watchdog has failed: Simple Server Framework replaces
// processes every ten seconds.
const watchdogPause = "10s"

// model returns the model of the application.
func (a *application) model(o *Options, args []string) (workers.Config, error) {
	argv, err := json.Marshal(args)
	if err != nil {
		return workers.Config{}, err
	}
	seconds := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) + "s" }
	m := workers.Config{Name: a.id, Source: a.file, Kind: "python", Params: stream.Params{
		"style": name, "args": string(argv), "watchdog.period": seconds(float64(o.WatchdogReadyPeriod)),
		"watchdog.request_average": int64(o.WatchdogRequestAverage), "watchdog.pause": watchdogPause,
	}}
	if o.WatchdogRequestThreshold > 0 {
		m.Params["watchdog.request_threshold"] = seconds(o.WatchdogRequestThreshold)
	}
	if a.venv != "" {
		m.Params["venv"] = a.venv
	}
	m.Order = "turns"
	m.Instances = o.ReplicateApplication * o.ReplicateServer
	m.Limits.Start, m.Limits.Run = a.start, a.start
	m.Limits.Restarts = restartsOf(o.MaxAllowedRestarts)
	t := m.Table()
	return m, errors.Join(t.SetParam("batching.kind", "soft"),
		t.SetParam("batching.max_delay", seconds(o.BatchingTimeout)))
}
