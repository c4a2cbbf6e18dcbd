package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/config"
	"millrace/examples/spotter"
	"millrace/server"
	"millrace/stream"
)

const serveExamples = `  millrace serve --model find=motion
  millrace serve motion
  millrace serve --config millrace.yaml --http 0.0.0.0:8000 --hosts cam.example.org
  millrace serve --model cost=delay,fixed=5ms,per_item=1ms,batching.max_size=8,instances=2`

func serveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve [SOURCE]",
		Short: "Run the server",
		Long: `Run the server until SIGTERM or SIGINT, which drain it: no new streams, waiting frames end, frames in flight are answered.

SIGHUP opens the log file again, for its rotation. It prints one line with its addresses when it is ready. Each setting is a key of the configuration file, a flag, and a
variable such as MILLRACE_HTTP; a flag wins over a variable, a variable over the file.`,
		Example: serveExamples,
		Args:    wrongUsage(cobra.MaximumNArgs(1)),
	}
	settings := configFlags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
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
			return err
		}
		go reopenLog(c.Context(), s, rotate)
		done := make(chan error, 1)
		go func() { done <- s.Run(c.Context()) }() // ends with the context
		select {
		case err := <-done:
			return err
		case <-s.Ready():
		}
		if _, err := fmt.Fprintln(c.OutOrStdout(), addresses(s)); err != nil {
			fmt.Fprintf(os.Stderr, "millrace: %v\n", err)
		}
		if cfg.TLS.SelfSigned {
			fmt.Fprint(c.ErrOrStderr(), accept(s))
		}
		return <-done
	}
	return c
}

// reopenLog opens the log file again at each signal, until ctx ends.
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

// accept tells how to get past a browser's warning, and where from.
func accept(s *server.Server) string {
	var b strings.Builder
	host, port, _ := net.SplitHostPort(s.Addr("http"))
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		for _, a := range server.Addresses() {
			if !net.ParseIP(a).IsLoopback() {
				fmt.Fprintf(&b, "  https://%s/console/\n", net.JoinHostPort(a, port))
			}
		}
	} else {
		fmt.Fprintf(&b, "  %s/console/ (phones do not reach it: serve with --http 0.0.0.0:%s)\n", s.URL("http"), port)
	}
	return "Open one of these, and accept the certificate when its SHA-256 fingerprint is\n  " + s.Fingerprint() + "\n" + b.String()
}

// addresses is the line that says the server is ready.
func addresses(s *server.Server) string {
	parts := []string{"millrace is ready:"}
	for _, l := range s.Listeners() {
		if l.URL != "" {
			parts = append(parts, l.URL)
		}
	}
	return strings.Join(parts, " ")
}

// reachable refuses a configuration whose models no client could reach. A program
// that embeds the server may turn every listener off.
func reachable(cfg server.Config) error {
	for _, l := range server.Listeners(cfg) {
		if l.URL != "" {
			return nil
		}
	}
	return stream.Errorf(stream.InvalidArgument, "http", "and grpc are both off: nothing would be served")
}

// flagSettings are the settings as flags.
type flagSettings struct {
	flags  *pflag.FlagSet
	file   string
	models []string
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

// config puts file, variables, flags and a source given as argument together.
func (f *flagSettings) config(args []string) (cfg server.Config, err error) {
	file := f.file
	if file == "" {
		file = os.Getenv(config.EnvConfig)
	}
	if file != "" {
		if cfg, err = config.Load(file); err != nil {
			return cfg, err
		}
	}
	for _, name := range config.StrayEnv(os.Environ()) {
		fmt.Fprintf(os.Stderr, "millrace: %s is no setting and was ignored\n", name)
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
			wrong = append(wrong, fmt.Errorf("--%s: %w", s.Flag, err))
		}
	}
	if err := cfg.AddModels(f.models...); err != nil {
		wrong = append(wrong, fmt.Errorf("--model: %w", err))
	}
	if len(wrong) > 0 {
		return cfg, usagef("%w", errors.Join(wrong...))
	}
	if len(args) == 1 {
		cfg.Models = append(cfg.Models, config.ModelFor(args[0]))
	}
	cfg.Version = version
	return cfg.WithDefaults(), errors.Join(cfg.Validate(), reachable(cfg))
}
