package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/config"
	"millrace/internal/heap"
	"millrace/internal/setting"
	"millrace/internal/ssf"
	"millrace/python"
	"millrace/server"
	"millrace/stream"
	"millrace/tracing"
	"millrace/workers"
	programs "millrace/workers/process"
)

const ssfExamples = `  millrace ssf --config ssf_config.yaml init build run
  millrace ssf run -p 8100 --replicate-application 2 --key secret
  millrace ssf --config app/ssf_config.yaml run --api grpc --port 8200`

func ssfCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "ssf [OPTION...] COMMAND...",
		Short: "Serve an application written for Simple Server Framework",
		Long: `Serve an application written for Simple Server Framework, with the options of the framework's command gc-ssf. The commands
are init (removes the files of build), build (calls the application's build), and run. When init or build fails, the exit
status is the result code. Further settings of this server are variables, such as MILLRACE_ORIGINS: millrace config --all lists them. docs/migrating.md has the differences.`,
		Example:            ssfExamples,
		DisableFlagParsing: true, // an option may have several values, and commands may be anywhere
	}
	options := ssf.Flags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		rest, commands, unknown, err := ssf.Arguments(c.Flags(), args)
		if err != nil {
			return usageError{err}
		}
		options.Unknown = unknown
		c.DisableFlagParsing = false
		if err := c.ParseFlags(rest); err != nil {
			return flagError(c, err)
		}
		if help, _ := c.Flags().GetBool("help"); help {
			return c.Help()
		}
		if err := options.Check(c.Flags().Args(), commands); err != nil {
			return usageError{err}
		}
		if len(options.Commands) == 0 {
			return usagef("ssf: has no command: want init, build or run")
		}
		return runSSF(c, options, args)
	}
	return c
}

// runSSF runs the commands. args are the unparsed options.
func runSSF(c *cobra.Command, o *ssf.Options, args []string) error {
	app, err := readSSF(o)
	if err != nil {
		return err
	}
	if steps := slices.DeleteFunc(slices.Clone(o.Commands), func(s string) bool { return s == "run" }); len(steps) > 0 {
		if err := app.build(c, o, steps); err != nil {
			return err
		}
	}
	if !slices.Contains(o.Commands, "run") {
		return nil
	}
	heap.Reserve()
	cfg, err := app.server(o, args)
	if err != nil {
		return err
	}
	s, err := serveConfig(c, cfg, nil, func(err error) error { return err })
	var failed error
	if s != nil {
		failed = s.RootFailure()
	}
	return ssfStatus(err, failed)
}

// Exit statuses of Simple Server Framework: any failure in a started application, and an unusable configuration.
const (
	ssfApplicationError = 32
	ssfConfigError      = 34
)

// ssfStatus returns the exit status of run. err ended the server, or is nil; failed is the application's failure
// while served, or nil.
func ssfStatus(err, failed error) error {
	if failed != nil {
		if err == nil {
			err = fmt.Errorf("the application has failed while it was served: exit status %d. Its last failure: %w", ssfApplicationError, failed)
		}
		return statusError{err, ssfApplicationError}
	}
	if code, ok := programs.ResultCode(err); ok {
		return statusError{err, code}
	}
	return err
}

// ssfApp is an application.
type ssfApp struct {
	file   string // absolute
	config ssf.Section
	id     string
	start  time.Duration // maximum time of the startup
	venv   string        // the folder of its virtual environment; "" = none
}

func readSSF(o *ssf.Options) (*ssfApp, error) {
	file, err := filepath.Abs(o.Config)
	if err != nil {
		return nil, err
	}
	a := &ssfApp{file: file, id: "untitled", start: 10 * time.Minute}
	if a.config, err = ssf.Read(file); err != nil {
		err = fmt.Errorf("--config: %w", err)
		if !errors.Is(err, fs.ErrNotExist) {
			err = statusError{err, ssfConfigError}
		}
		return nil, err
	}
	section, _ := a.config.Get("application").(ssf.Section)
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

// build runs init and build with the code that serves applications.
func (a *ssfApp) build(c *cobra.Command, o *ssf.Options, steps []string) error {
	interpreter := "python3"
	if a.venv != "" {
		interpreter = filepath.Join(a.venv, "bin", "python")
	}
	dir, err := python.Unpack("")
	if err != nil {
		return err
	}
	in, err := json.Marshal(map[string]any{"config": a.config, "file": a.file, "args": o.Values(), "steps": steps})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(c.Context(), interpreter, "-c", "import sys; sys.path[:0] = sys.argv[1:3]; from millrace import _ssf_build; sys.exit(_ssf_build.main())", filepath.Join(dir, "stand_ins"), dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), c.OutOrStdout(), c.ErrOrStderr()
	cmd.Env = append(config.WithoutSecrets(os.Environ()), "PYTHONDONTWRITEBYTECODE=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var exit *exec.ExitError
	switch err := cmd.Run(); {
	case errors.As(err, &exit) && exit.Exited():
		return statusError{fmt.Errorf("%s: ended with the result code %d", strings.Join(steps, " "), exit.ExitCode()), exit.ExitCode()}
	case err != nil:
		return fmt.Errorf("%s: %w", strings.Join(steps, " "), err)
	}
	return nil
}

// server returns the configuration of the server for the application.
func (a *ssfApp) server(o *ssf.Options, args []string) (cfg server.Config, err error) {
	for _, name := range config.UnknownEnv(os.Environ()) {
		fmt.Fprintf(os.Stderr, "millrace: %s is not a setting and was ignored\n", name)
	}
	if err := cfg.Env(os.LookupEnv); err != nil {
		return cfg, err
	}
	if len(cfg.Models) > 0 {
		return cfg, usagef("%s: ssf serves one application alone: use millrace serve for several models", config.EnvModels)
	}
	at := func(port int) string { return net.JoinHostPort(o.Host, strconv.Itoa(port)) }
	if o.API == ssf.GRPC {
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
	cfg.Metrics.SSF = tracing.WithMetrics
	given := func(name string) bool { return o.Given(name) }
	if given("prometheus-endpoint") {
		cfg.Metrics.Path = "/" + strings.TrimPrefix(o.PrometheusEndpoint, "/")
	}
	if given("prometheus-buckets") {
		cfg.Metrics.Buckets = o.PrometheusBuckets
	}
	if given("stdout-log-level") {
		cfg.Log.Level = o.Level()
	}
	if given("grpc-max-connections") {
		cfg.Limits.MaxCalls = o.GRPCMaxConnections
	}
	if given("key") {
		cfg.APIKey = o.Key
	}
	if o.EnableSession {
		cfg.Auth.Module, cfg.Auth.Sessions = o.SessionModuleFile, time.Duration(o.SessionTimeout)*time.Second
	}
	if o.EnableSSL {
		cfg.TLS = config.TLS{Cert: o.SSLCertificateFile, Key: o.SSLKeyFile}
	}
	if o.EnableCORS && len(cfg.Origins) == 0 {
		return cfg, usagef("--enable-cors-middleware: list the origins whose pages may use the server: MILLRACE_ORIGINS=http://localhost:3000,...")
	}
	m, err := a.model(o, args)
	if err != nil {
		return cfg, err
	}
	cfg.Models = []workers.Config{m}
	cfg.Programs.Root, cfg.Programs.Exit, cfg.Programs.Failure = m.Name, &o.StopOnError, o.StopOnError
	cfg.Version = version
	cfg = cfg.WithDefaults()
	return cfg, setting.Join(cfg.Validate(), checkReachable(cfg))
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

// model returns the model of the application.
func (a *ssfApp) model(o *ssf.Options, args []string) (workers.Config, error) {
	argv, err := json.Marshal(args)
	if err != nil {
		return workers.Config{}, err
	}
	seconds := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) + "s" }
	m := workers.Config{Name: a.id, Source: a.file, Kind: "python", Params: stream.Params{
		"style": "ssf", "args": string(argv), "watchdog.period": seconds(float64(o.WatchdogReadyPeriod)), "watchdog.request_average": int64(o.WatchdogRequestAverage),
	}}
	if o.WatchdogRequestThreshold > 0 {
		m.Params["watchdog.request_threshold"] = seconds(o.WatchdogRequestThreshold)
	}
	if a.venv != "" {
		m.Params["venv"] = a.venv
	}
	m.Instances = o.ReplicateApplication * o.ReplicateServer
	m.Limits.Start, m.Limits.Run = a.start, a.start
	m.Limits.Restarts = restartsOf(o.MaxAllowedRestarts)
	t := m.Table()
	return m, errors.Join(t.SetParam("batching.kind", "soft"), t.SetParam("batching.max_delay", seconds(o.BatchingTimeout)))
}
