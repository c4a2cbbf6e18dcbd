package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/config"
	"millrace/examples/spotter"
	"millrace/internal/heap"
	"millrace/internal/setting"
	"millrace/server"
	"millrace/stream"
	"millrace/stream/coded"
)

const serveExamples = `  millrace serve --model find=motion
  millrace serve motion
  millrace serve --config millrace.yaml --http 0.0.0.0:8000 --hosts cam.example.org
  millrace serve --model cost=delay,fixed=5ms,per_item=1ms,batching.max_size=8,instances=2`

func serveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve [SOURCE]",
		Short: "Run the server",
		Long: `Run the server until SIGTERM or SIGINT, which drain it: it opens no new streams, ends waiting frames, and answers frames in flight.

When it is ready, it prints one line with its addresses. SIGHUP reopens the log file, for log rotation. Each setting is a key of the configuration
file, a flag, and a variable such as MILLRACE_HTTP; a flag overrides a variable, and a variable overrides the file.`,
		Example: serveExamples,
		Args:    wrongUsage(cobra.MaximumNArgs(1)),
	}
	settings := configFlags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		heap.Reserve()
		cfg, err := settings.config(args)
		if err != nil {
			return err
		}
		cfg.Clip = spotter.Clip
		rotate := make(chan os.Signal, 1)
		signal.Notify(rotate, syscall.SIGHUP)
		defer signal.Stop(rotate)
		s, err := server.New(cfg)
		if err != nil {
			return settings.withFlagNames(cfg, err)
		}
		go reopenLog(c.Context(), s, rotate)
		done := make(chan error, 1)
		go func() { done <- s.Run(c.Context()) }() // ends with the context
		select {
		case err := <-done:
			return settings.withFlagNames(cfg, err)
		case <-s.Ready():
		}
		if _, err := fmt.Fprintln(c.OutOrStdout(), readyLine(s)); err != nil {
			fmt.Fprintf(os.Stderr, "millrace: %v\n", err)
		}
		if cfg.TLS.SelfSigned {
			fmt.Fprint(c.ErrOrStderr(), certificateHelp(s))
		}
		return <-done
	}
	return c
}

// reopenLog reopens the log file at each signal, until ctx ends.
func reopenLog(ctx context.Context, s *server.Server, signals <-chan os.Signal) {
	for {
		select {
		case <-signals:
			if err := s.ReopenLog(); err != nil {
				fmt.Fprintf(os.Stderr, "millrace: %v\n", err)
			}
		case <-ctx.Done():
			return
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
		fmt.Fprintf(&b, "  %s/console/ (other devices cannot reach it: serve with --http 0.0.0.0:%s)\n", s.URL("http"), port)
	}
	return "Open one of these, and accept the certificate if its SHA-256 fingerprint is\n  " + s.Fingerprint() + "\n" + b.String()
}

// readyLine says that the server is ready, and lists its addresses.
func readyLine(s *server.Server) string {
	parts := []string{"millrace is ready:"}
	for _, l := range s.Listeners() {
		if l.URL != "" {
			parts = append(parts, l.URL)
		}
	}
	return strings.Join(parts, " ")
}

// checkReachable returns an error if all listeners are off, since no client could then
// reach the models. A program that embeds the server may turn every listener off.
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
	source string // the name of the model that the argument SOURCE makes
}

// configFlags adds a flag for each setting.
func configFlags(flags *pflag.FlagSet) *flagSettings {
	f := &flagSettings{flags: flags}
	flags.StringVar(&f.file, "config", "", "configuration file ("+config.EnvConfig+")")
	flags.StringArrayVar(&f.models, "model", nil, "a model, as NAME=SOURCE[,key=value...]; may be repeated ("+config.EnvModels+")")
	for _, s := range config.Settings() {
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

// config composes the configuration from the file, the variables, the flags and the
// source that is given as an argument.
func (f *flagSettings) config(args []string) (cfg server.Config, err error) {
	file, from := f.file, "--config"
	if !f.flags.Changed("config") {
		file, from = os.Getenv(config.EnvConfig), config.EnvConfig
	}
	if file != "" {
		cfg, err = config.Load(file)
	} else if f.flags.Changed("config") {
		return cfg, usagef("--config: is empty: want a file")
	}
	var unread *fs.PathError
	switch {
	case errors.As(err, &unread):
		return cfg, fmt.Errorf("%s: %w", from, err)
	case err != nil:
		return cfg, err
	}
	for _, name := range config.UnknownEnv(os.Environ()) {
		fmt.Fprintf(os.Stderr, "millrace: %s is not a setting and was ignored\n", name)
	}
	if err := cfg.Env(os.LookupEnv); err != nil {
		return cfg, err
	}
	var wrong []error
	for _, s := range config.Settings() {
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
		m := config.ModelFor(args[0])
		f.source, cfg.Models = m.Name, append(cfg.Models, m)
	}
	cfg.Version = version
	cfg = cfg.WithDefaults()
	return cfg, f.withFlagNames(cfg, setting.Join(cfg.Validate(), checkReachable(cfg)))
}

// withFlagNames replaces names of settings in err by what they were given with: flags,
// --model, or the argument SOURCE.
func (f *flagSettings) withFlagNames(cfg server.Config, err error) error {
	names := map[string]string{}
	for _, s := range config.Settings() {
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
