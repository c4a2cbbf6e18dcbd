// Command millrace-bench compares Millrace with bare loops that do the same work without Millrace, with the same
// clients on the same machine. Server and bare loop run in turns, and the ratio is the median over the rounds.
//
// The program prints measurements with the limits of the design, and enforces none: the exit status is 0 when every
// row was measured, else 1.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"runtime"
	"time"

	"millrace/internal/processors"
)

// options holds the values of the flags.
type options struct {
	round    time.Duration
	rounds   int
	only     *regexp.Regexp
	progress io.Writer
}

// parts are the measurements, in the order of the table. Slow parts run only when named in -rows.
var parts = []struct {
	name string
	slow bool
	run  func(*bench) error
}{
	{"ws", false, webSocket},
	{"rest", false, rest},
	{"grpc", false, grpcCalls},
	{"json", false, jsonNumbers},
	{"native", false, nativeCall},
	{"graph", false, graphCall},
	{"companions", false, canceledCompanions},
	{"video", false, video},
	{"pulled", false, pulled},
	{"start", false, cameraStarts},
	{"chunks", false, chunks},
	{"onnx", false, onnxCalls},
	{"onnxvideo", false, onnxVideo},
	{"onnxsecond", false, secondModel},
	{"python", false, python},
	{"pythonjson", false, pythonJSON},
	{"pythonvideo", true, pythonVideo},
	{"pythonsleep", true, pythonSleep},
	{"pythonrestart", true, pythonRestart},
	{"metrics", false, metricsOn},
	{"auth", false, authentication},
	{"tls", false, encrypted},
	{"memory", false, memory},
	{"reloads", false, reloads},
	{"unread", false, unread},
	{"attack", false, attackAll},
	{"attacks", true, attackEach},
	{"bomb", false, bomb},
	{"overload", false, overload},
	{"overload-cpu", true, overloadCPU},
	{"fairness", true, fairness},
	{"many", true, many},
	{"cameras-dead", true, camerasDead},
	{"capacity", true, capacity},
	{"path", true, requestPath},
	{"peers", true, peers},
	{"tasks", true, durableTasks},
	{"tasks-files", true, largeTask},
	{"tasks-waiting", true, manyWaitingTasks},
	{"tasks-live", true, tasksBesideLive},
	{"tasks-celery", true, tasksBesideCelery},
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == childArg {
		if err := childMain(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "millrace-bench: child:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, out, errs io.Writer) int {
	f := flag.NewFlagSet("millrace-bench", flag.ContinueOnError)
	f.SetOutput(errs)
	asJSON := f.Bool("json", false, "print the table as JSON")
	only := f.String("rows", "", "measure the parts whose `name` matches: ws, rest, grpc, json, native, graph, "+
		"companions, video, pulled, start, chunks, onnx, onnxvideo, onnxsecond, python, pythonjson, metrics, auth, "+
		"tls, memory, reloads, unread, attack, bomb, overload, and, only when named, attacks, pythonvideo, "+
		"pythonsleep, pythonrestart, overload-cpu, fairness, many, cameras-dead, capacity, path, peers, tasks, "+
		"tasks-files, tasks-waiting, tasks-live, tasks-celery")
	round := f.Duration("round", 500*time.Millisecond,
		"how long each round runs; those of overload, fairness, many and cameras-dead take six to 24 times that")
	rounds := f.Int("rounds", 9, "rounds of each pair; overload and many take a third of them, cameras-dead half")
	if err := f.Parse(args); err != nil {
		return 2
	}
	match, err := regexp.Compile(*only)
	if err != nil || *round <= 0 || *rounds < 1 || f.NArg() > 0 {
		fmt.Fprintln(errs, "millrace-bench: -rows is a regular expression, -round and -rounds are above 0, and "+
			"there are no arguments")
		return 2
	}
	table, err := measure(options{round: *round, rounds: *rounds, only: match, progress: errs})
	if *asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		if e := e.Encode(table); e != nil && err == nil {
			err = e
		}
	} else {
		table.write(out)
	}
	if err != nil {
		fmt.Fprintln(errs, "millrace-bench:", err)
		return 1
	}
	return 0
}

// measure runs the selected parts. measure returns the measured rows, and the errors of failed parts.
func measure(o options) (*Table, error) {
	b := &bench{options: o, table: &Table{
		Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0),
		Date: time.Now().UTC().Format(time.DateOnly),
	}}
	heap := processors.OwnHeap(math.MaxInt64) // for the bare loops, too
	defer heap.Close()
	var err error
	if b.dir, err = os.MkdirTemp("", "millrace-bench"); err != nil {
		return b.table, err
	}
	defer os.RemoveAll(b.dir)
	if err := b.start(); err != nil {
		return b.table, err
	}
	var failed []string
	busy, own, start := machineTime()
	for _, p := range parts {
		if !o.only.MatchString(p.name) || p.slow && o.only.String() == "" {
			continue
		}
		began := time.Now()
		fmt.Fprintf(o.progress, "%-13s ", p.name)
		if err := p.run(b); err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", p.name, err))
			fmt.Fprintln(o.progress, "failed:", err)
			continue
		}
		fmt.Fprintf(o.progress, "%.0f s\n", time.Since(began).Seconds())
	}
	if err := b.stop(); err != nil {
		failed = append(failed, "stopping the server: "+err.Error())
	}
	if busy2, own2, now := machineTime(); busy2 > 0 {
		b.table.Others = max(((busy2-busy)-(own2-own)).Seconds()/now.Sub(start).Seconds()/float64(runtime.NumCPU()), 0)
	}
	if failed != nil {
		return b.table, fmt.Errorf("not everything could be measured: %q", failed)
	}
	return b.table, nil
}
