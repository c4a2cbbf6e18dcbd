// Command millrace-soak runs a server, as built, with clients of every protocol and with cameras, files and webhooks,
// and disturbs all of them from outside: the command kills processes, breaks connections, reloads models and the
// configuration, and stops receivers. Clients and receivers count every frame; at the end their counts must equal
// /metrics, and the server must not hold more than at the beginning.
//
// The command drives the program over its listeners only, and must not know how the server works. The exit status is
// 1 when a count or a limit is violated.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

// options holds the values of the flags.
type options struct {
	binary   string
	duration time.Duration
	seed     uint64
	ratio    float64
	reloads  int
	keep     string
	progress io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(soak(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func soak(ctx context.Context, args []string, out, errs io.Writer) int {
	o := options{progress: errs}
	f := flag.NewFlagSet("millrace-soak", flag.ContinueOnError)
	f.SetOutput(errs)
	f.StringVar(&o.binary, "server", "bin/millrace", "the server's `program`, as make build makes it")
	f.DurationVar(&o.duration, "for", 30*time.Minute, "how long clients run with faults; 0: not at all")
	f.Uint64Var(&o.seed, "seed", 1, "draws the faults and what clients send")
	f.Float64Var(&o.ratio, "ratio", 1.3, "the most that resident memory at the end may be of that after two "+
		"minutes; 0: any")
	f.IntVar(&o.reloads, "reloads", 0, "swap an ONNX model so often, and compare resident memory with that after 10 "+
		"times; 0: not at all")
	f.StringVar(&o.keep, "keep", "", "a `file` for the server's log of a run that fails")
	asJSON := f.Bool("json", false, "print the report as JSON")
	if err := f.Parse(args); err != nil {
		return 2
	}
	if o.duration < 0 || o.ratio < 0 || o.reloads < 0 || o.reloads > 0 && o.reloads <= fewReloads || f.NArg() > 0 {
		fmt.Fprintf(errs, "millrace-soak: -for and -ratio are 0 or above, -reloads is 0 or above %d, and there are "+
			"no arguments\n", fewReloads)
		return 2
	}
	path, err := filepath.Abs(o.binary) // the server runs in a folder of its own
	if err != nil {
		fmt.Fprintln(errs, "millrace-soak:", err)
		return 1
	}
	o.binary = path
	report, err := o.run(ctx)
	if err != nil {
		fmt.Fprintln(errs, "millrace-soak:", err)
		return 1
	}
	if *asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		if err := e.Encode(report); err != nil {
			fmt.Fprintln(errs, "millrace-soak:", err)
			return 1
		}
	} else {
		report.write(out)
	}
	if len(report.Problems) > 0 {
		return 1
	}
	return 0
}

// run runs the parts selected by flags.
func (o options) run(ctx context.Context) (report *Report, err error) {
	report = &Report{Seed: o.seed, Problems: []string{}}
	if o.duration > 0 {
		r := &run{options: o}
		if report, err = r.do(ctx); err != nil {
			return nil, err
		}
	}
	if o.reloads > 0 && ctx.Err() == nil {
		if report.Reloads, err = reloads(ctx, o); err != nil {
			return nil, err
		}
		if !report.Reloads.Met {
			report.Problems = append(report.Problems,
				fmt.Sprintf("resident memory after %d reloads is %.2f times that after %d", o.reloads,
					report.Reloads.Ratio, fewReloads))
		}
	}
	if ctx.Err() != nil {
		return nil, errors.New("interrupted")
	}
	return report, nil
}
