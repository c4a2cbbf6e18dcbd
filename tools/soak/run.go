package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"millrace/client"
)

// run is one soak: a server, its clients, the cameras and receivers, and the faults.
type run struct {
	options
	site     *site
	server   *program
	api      *client.Client // never cut
	web      *http.Client   // never cut
	cameras  [2]*camera     // one for the configuration, and one for temporary streams
	gone     *camera        // is never on
	receiver *receiver
	cutHTTP  *proxy // for clients with broken connections
	cutGRPC  *proxy
	slow     *proxy // for clients that stop reading
	accounts []*account
	guests   *guests // temporary streams
	healing  sync.WaitGroup
	began    time.Time
	faults   atomic.Int64
	caused   []int // by the index of the fault
	form     form  // last read by the server

	mu       sync.Mutex
	problems []string
	memory   []sample
}

// mostProblems bounds the list of failures: one failure is enough for the run to fail.
const mostProblems = 100

// problem records a failure of the run.
func (r *run) problem(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.problems) == mostProblems {
		return
	}
	r.problems = append(r.problems, err.Error())
	fmt.Fprintf(r.progress, "%s  FAILED %v\n", r.clock(), err)
}

func (r *run) clock() string { return fmt.Sprintf("%6.1fs", time.Since(r.began).Seconds()) }

// start starts the server and its cameras and receivers.
func (r *run) start(dir string) (err error) {
	r.began = time.Now()
	if r.site, err = newSite(dir); err != nil {
		return err
	}
	r.cameras = [2]*camera{newCamera(), newCamera()}
	r.gone = newCamera()
	r.gone.dead.Store(true)
	r.receiver = newReceiver()
	r.site.camera, r.site.hook = r.cameras[0].address(), r.receiver.URL
	r.form = first
	if err := os.WriteFile(r.site.path("millrace.yaml"), []byte(r.site.config(first)), 0o600); err != nil {
		return err
	}
	if r.server, err = serve(r.binary, r.site); err != nil {
		return err
	}
	r.web = &http.Client{Transport: &http.Transport{}, Timeout: patience}
	if r.api, err = client.New(r.server.http); err != nil {
		return err
	}
	for to, target := range map[**proxy]string{&r.cutHTTP: r.server.http, &r.cutGRPC: r.server.grpc,
		&r.slow: r.server.http} {
		if *to, err = newProxy(target); err != nil {
			return err
		}
	}
	r.guests = &guests{run: r}
	return nil
}

// close ends everything started by start, including the server if still running.
func (r *run) close() {
	for _, p := range []*proxy{r.cutHTTP, r.cutGRPC, r.slow} {
		if p != nil {
			p.close()
		}
	}
	if r.server != nil {
		_ = r.server.cmd.Process.Kill() // has ended already, unless the run failed
	}
	for _, c := range append(r.cameras[:], r.gone) {
		if c != nil {
			c.close()
		}
	}
	if r.receiver != nil {
		r.receiver.CloseClientConnections()
		r.receiver.Close()
	}
}

// warmup is how long clients run before the server's initial holdings are measured: by then, permanent resources are
// allocated.
const warmup = 5 * time.Second

// do runs the soak and returns the report.
func (r *run) do(ctx context.Context) (*Report, error) {
	dir, err := os.MkdirTemp("", "millrace-soak")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	defer r.close()
	if err := r.start(dir); err != nil {
		return nil, err
	}
	visitors := r.visitors()
	r.load(ctx, visitors, warmup, 0, nil)
	before, err := r.holdings(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(r.progress, "%s  at the beginning: %s\n", r.clock(), before)
	r.load(ctx, visitors, r.duration, r.seed, r.disturb)
	report := &Report{Seed: r.seed, Seconds: time.Since(r.began).Seconds(), Faults: int(r.faults.Load())}
	r.heal(ctx)
	r.problem(r.settle(ctx, report))
	r.problem(r.restore(ctx))
	r.compare(ctx, before, report)
	had := descendants(r.server.pid())
	r.problem(r.server.stop())
	r.ended(had)
	report.Problems = append([]string{}, r.problems...) // not null in JSON
	for i, n := range r.caused {
		report.ByFault = append(report.ByFault, FaultCount{faults[i].name, n})
	}
	r.measure(report)
	return report, nil
}

// load lets the clients run for a time, with faults if disturb is not nil.
func (r *run) load(ctx context.Context, visitors []*visitor, d time.Duration, seed uint64,
	disturb func(context.Context, *rand.Rand)) {
	timed, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var wg sync.WaitGroup
	for i, v := range visitors {
		wg.Go(func() { v.visit(timed, seed+uint64(i)+1, r.problem) })
	}
	if disturb != nil {
		wg.Go(func() {
			r.watch(timed)
			cancel() // the server may have ended before
		})
		disturb(timed, rand.New(rand.NewPCG(seed, 0)))
	}
	wg.Wait()
}

// heal ends all lasting faults.
func (r *run) heal(ctx context.Context) {
	r.healing.Wait()
	for _, c := range r.cameras {
		c.heal()
	}
	r.receiver.heal()
	r.guests.removeAll(ctx)
}

// ended checks that the server leaves no processes behind, where had are the processes just before the server's end,
// and no files.
func (r *run) ended(had []descendant) {
	if left := alive(had); len(left) > 0 {
		r.problem(fmt.Errorf("the server left processes: %v", left))
	}
	if left := entries(r.site.path("tmp")); len(left) > 0 {
		r.problem(fmt.Errorf("the server left temporary files: %v", left))
	}
	text, err := os.ReadFile(r.site.path("log"))
	r.problem(err)
	r.problem(panics(string(text) + r.server.stderr.String()))
	if len(r.problems) > 0 && r.keep != "" {
		r.problem(errors.Join(os.WriteFile(r.keep, text, 0o600)))
	}
}

// discard reads the rest of an answer and closes the body.
func discard(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, 1<<20))
	_ = body.Close()
}
