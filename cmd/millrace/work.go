package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"millrace/config"
	"millrace/ingest/access"
	"millrace/server"
	"millrace/stream/coded"
	"millrace/tasks"
	elsewhere "millrace/tasks/remote"
)

const workExamples = `  millrace work --from https://models.example.org:8000 --token-file worker.key --model find=motion
  millrace work --from 10.0.0.7:8000 --config millrace.yaml --slots 4 --drain 5m
  millrace work --from 10.0.0.7:8000 --model-repository ./models --json
  millrace work --nats nats://10.0.0.5:4222 --data /shared/tasks --model find=motion`

// consumer has the flags of work.
type consumer struct {
	name, temp string
	slots      int
	asJSON     bool
}

func workCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "work --from SERVER | --nats ADDRESS --data FOLDER [SOURCE] [-- ARG...]",
		Short: "Run tasks of a server on another host, with models of this host",
		Long: `Take tasks from a server with a data folder, run the tasks on models of this host, and give the results back.
The models, and settings such as memory.budget and onnx, are given as for millrace serve. No address is opened, except
metrics.address. Settings of addresses, clients and server streams have no effect.

With --nats and --data in place of --from, the command takes the tasks from NATS servers and the files from the folder
that all servers and consumers of the NATS servers share (docs/tasks.md).

The server needs to know nothing of the models, and the key needs the role work. The command takes a task only for a
free slot (--slots) and a model that is ready. A task whose consumer is not heard of for the time tasks.lease of the
server runs again elsewhere, and a late result is dropped.

SIGTERM and SIGINT end the command: no further task is taken, running tasks may finish within --drain, and the others
are given back at once. While the server does not answer, running tasks go on, and the command tries again. The exit
status is 1 when the server refuses the key.`,
		Example: workExamples,
		Args:    wrongUsage(beforeDash(cobra.MaximumNArgs(1))),
	}
	settings := configFlags(c.Flags())
	foldSettings(c)
	c.Flags().StringVar(&settings.python, "python", "", "interpreter of SOURCE: a path or a name in PATH")
	host := &remote{flag: "--from"}
	c.Flags().StringVar(&host.addr, "from", os.Getenv(config.EnvAddr),
		"address of the server, or unix:/PATH for a unix socket ("+config.EnvAddr+")")
	host.credentialFlags(c.Flags())
	w := &consumer{}
	c.Flags().StringVar(&w.name, "consumer", "", "name of this consumer, for people (the name of the host)")
	c.Flags().IntVar(&w.slots, "slots", 1, "tasks that run at once")
	c.Flags().StringVar(&w.temp, "temp", "", "folder for inputs and results while their tasks run (millrace-work in "+
		"the folder for temporary files)")
	c.Flags().BoolVar(&w.asJSON, "json", false, "print a line of JSON for each attempt")
	c.RunE = func(c *cobra.Command, args []string) error {
		args, settings.args = atDash(c, args)
		if w.slots < 1 {
			return usagef("--slots: %d is less than 1", w.slots)
		}
		cfg, err := settings.config(args)
		if err != nil {
			return err
		}
		shared := len(cfg.NATS.Servers) > 0
		switch {
		case shared && c.Flags().Changed("from"):
			return usagef("--from: and nats exclude each other: tasks come from one of them")
		case shared:
			host = nil
		case host.addr == "":
			return usagef("--from: is missing: name the server with the tasks, or NATS servers with --nats")
		}
		return w.run(c, host, cfg, func(err error) error { return settings.withFlagNames(cfg, err) })
	}
	return c
}

// withoutClients returns the configuration of a server without addresses and clients.
func withoutClients(cfg server.Config) server.Config {
	cfg.HTTP, cfg.GRPC, cfg.Inside = server.Off, server.Off, true
	cfg.APIKey, cfg.Audit, cfg.Data, cfg.StreamsFile, cfg.Streams = "", "", "", "", nil
	cfg.Events.Folder = ""
	cfg.Auth, cfg.TLS, cfg.Management, cfg.Apps = config.Auth{}, config.TLS{}, config.Management{}, config.Apps{}
	cfg.Programs.Root, cfg.NATS = "", config.NATS{}
	return cfg
}

// run runs the tasks of a host; nil = of the NATS servers of cfg.
func (w *consumer) run(c *cobra.Command, host *remote, cfg server.Config, named func(error) error) error {
	if w.name == "" {
		w.name, _ = os.Hostname()
		w.name = cmp.Or(w.name, "consumer")
	}
	if err := access.CheckName(w.name); err != nil {
		return usagef("--consumer: %w", err)
	}
	if host == nil {
		job := serving{cfg: withoutClients(cfg), named: named, work: func(ctx context.Context, s *server.Server) error {
			data, err := server.OpenData(ctx, &cfg, s.Log())
			if err != nil {
				return err
			}
			defer data.Close()
			w.work(ctx, c, s, data, strings.Join(cfg.NATS.Servers, " "), nil, cfg.Drain)
			return nil
		}}
		_, err := job.run(c)
		return err
	}
	cl, err := host.dial()
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, refuse := context.WithCancelCause(c.Context())
	defer refuse(nil)
	c.SetContext(ctx)
	o := elsewhere.Options{Client: cl, Folder: cmp.Or(w.temp, filepath.Join(os.TempDir(), "millrace-work")),
		Refused: func(err error) { refuse(refusal{err}) }}
	job := serving{cfg: withoutClients(cfg), named: named, work: func(ctx context.Context, s *server.Server) error {
		o.Log = s.Log()
		from, err := elsewhere.Open(o)
		if err != nil {
			return err
		}
		err = from.Check(ctx, w.name)
		switch coded.CodeOf(err) {
		case coded.Unauthenticated, coded.PermissionDenied, coded.NotFound:
			return errors.Join(err, from.Close())
		}
		w.work(ctx, c, s, from, host.addr, err, cfg.Drain)
		return from.Close()
	}}
	_, err = job.run(c)
	var refused refusal
	if errors.As(context.Cause(ctx), &refused) {
		return errors.Join(refused.error, err)
	}
	return err
}

// work runs the tasks of a source at an address until ctx ends. away is why the source does not answer yet.
func (w *consumer) work(ctx context.Context, c *cobra.Command, s *server.Server, from tasks.Source, addr string,
	away error, drain time.Duration) {
	w.ready(c, s, addr, away)
	s.Work(ctx, from, server.Work{Name: w.name, Slots: w.slots, Drain: drain, OnEnd: w.ended(c)})
}

// refusal is the cause of the end of a command whose server refuses the key.
type refusal struct{ error }

// ready prints that the models are loaded. away is why the server does not answer yet.
func (w *consumer) ready(c *cobra.Command, s *server.Server, addr string, away error) {
	out := c.OutOrStdout()
	if w.asJSON {
		out = c.ErrOrStderr()
	}
	var names []string
	for _, g := range s.Models().Groups() {
		names = append(names, g.Model().Name)
	}
	fmt.Fprintf(out, "millrace works: takes tasks from %s for the models %s, %d at once\n", addr,
		strings.Join(names, " "), w.slots)
	if away != nil {
		s.Log().Warn("the server of the tasks does not answer yet: trying again", "server", addr, "error", away)
	}
}

// attempt is a line of --json.
type attempt struct {
	Task    string  `json:"task"`
	Model   string  `json:"model"`
	Attempt int     `json:"attempt"`
	Outcome string  `json:"outcome"` // finished, failed, released or lost
	Error   string  `json:"error,omitempty"`
	Seconds float64 `json:"seconds"`
}

// ended returns the function that prints the end of an attempt; nil without --json.
func (w *consumer) ended(c *cobra.Command) func(tasks.End) {
	if !w.asJSON {
		return nil
	}
	var mu sync.Mutex
	return func(e tasks.End) {
		mu.Lock()
		defer mu.Unlock()
		line := attempt{Task: e.Task.ID, Model: e.Task.Model, Attempt: e.Task.Attempt, Outcome: e.Outcome,
			Seconds: e.Took.Round(time.Millisecond).Seconds()}
		if e.Err != nil {
			line.Error = e.Err.Error()
		}
		_ = json.NewEncoder(c.OutOrStdout()).Encode(line)
	}
}
