package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"millrace/internal/ctxio"
)

// holdings is a server's resource usage without clients.
type holdings struct {
	descriptors, goroutines int
	sessions                int            // WebSocket sessions, including sessions waiting for their clients
	leases                  int            // buffers of frames
	children                map[string]int // processes, by the name of their program
	temporary               []string       // files and folders
	groups                  map[string]uint64
}

func (h holdings) String() string {
	return fmt.Sprintf("%d file descriptors, %d goroutines, %d sessions, %d leases of memory, child processes %v, "+
		"%d temporary files",
		h.descriptors, h.goroutines, h.sessions, h.leases, h.children, len(h.temporary))
}

// exceeds reports whether h exceeds before in any count, or has other child processes or temporary files.
func (h holdings) exceeds(before holdings) bool {
	return h.descriptors > before.descriptors || h.goroutines > before.goroutines || h.sessions > before.sessions ||
		h.leases > before.leases ||
		!maps.Equal(h.children, before.children) || !slices.Equal(h.temporary, before.temporary)
}

// settleTime bounds the server's time for releasing clients' resources.
const settleTime = time.Minute

// sampleTime is the length of an observation of the server's holdings, which vary because sources are reopened.
const sampleTime = 10 * time.Second

// holdings returns the server's minimum holdings within sampleTime.
func (r *run) holdings(ctx context.Context) (least holdings, err error) {
	if err := r.running(ctx); err != nil {
		return least, err
	}
	for limit := time.Now().Add(sampleTime); time.Now().Before(limit) &&
		ctx.Err() == nil; ctxio.Sleep(ctx, 200*time.Millisecond) {
		now, err := r.held(ctx)
		if err != nil {
			return least, err
		}
		if least.descriptors == 0 || now.descriptors+now.goroutines < least.descriptors+least.goroutines {
			least = now
		}
	}
	return least, ctx.Err()
}

// held returns the server's present holdings.
func (r *run) held(ctx context.Context) (h holdings, err error) {
	m, err := r.scrape(ctx)
	if err != nil {
		return h, err
	}
	h = holdings{descriptors: descriptors(r.server.pid()), goroutines: int(m.sum("go_goroutines")),
		sessions: int(m.sum("millrace_sessions")), leases: int(m.sum("millrace_memory_leases")),
		children:  map[string]int{},
		temporary: entries(r.site.path("tmp")), groups: m.by("group", "millrace_goroutines")}
	for _, d := range descendants(r.server.pid()) {
		program, _, _ := strings.Cut(d.command, " ")
		h.children[filepath.Base(program)]++
	}
	return h, nil
}

func (r *run) scrape(ctx context.Context) (metrics, error) {
	return scrape(ctx, r.web, "http://"+r.server.http+"/metrics")
}

// compare compares all counts, and the server's holdings with the holdings before.
func (r *run) compare(ctx context.Context, before holdings, report *Report) {
	var now holdings
	for limit := time.Now().Add(settleTime); ; ctxio.Sleep(ctx, 500*time.Millisecond) {
		h, err := r.held(ctx)
		if err != nil {
			r.problem(err)
			return
		}
		if now = h; !now.exceeds(before) || time.Now().After(limit) || ctx.Err() != nil {
			break
		}
	}
	fmt.Fprintf(r.progress, "%s  at the end: %s\n", r.clock(), now)
	report.Before, report.After = before.String(), now.String()
	if now.exceeds(before) {
		r.problem(fmt.Errorf("the server holds %s; at the beginning it held %s; goroutines by group: %v, at the "+
			"beginning %v; temporary files: %v", now, before, now.groups, before.groups, now.temporary))
	}
	m, err := r.scrape(ctx)
	if err != nil {
		r.problem(err)
		return
	}
	r.compareModels(m, report)
}

// compareModels compares the clients' and the server's counts for each model.
func (r *run) compareModels(m metrics, report *Report) {
	clients := map[string]bool{}
	for _, a := range r.accounts {
		s := m.served(a.model)
		if a.unloaded {
			s.add(m.served(""))
		}
		l := a.line(s)
		for _, wrong := range a.compare(l) {
			r.problem(fmt.Errorf("%s", wrong))
		}
		report.Models = append(report.Models, l)
		clients[a.model] = true
	}
	for model := range m.by("model", "millrace_frames_accepted_total") {
		if !clients[model] && model != "" && model != findModel { // permanent streams are still running
			for _, wrong := range m.served(model).balance(model) {
				r.problem(fmt.Errorf("%s", wrong))
			}
		}
	}
}
