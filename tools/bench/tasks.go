package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/valyala/fasthttp"

	"millrace/tasks"
)

const (
	taskClients = 64
	taskRequest = `{"inputs":[{"name":"x","datatype":"INT32","shape":[2],"data":[7,8]}]}`
	// syncsPerTask is the number of fsyncs of a small task with sync "always", as `strace -f -e fsync` shows with one
	// client: one for each change of the record.
	syncsPerTask = 3
)

// durableTasks measures small tasks, from the submission to the fetched result, and the time from the submission to
// the begin of the run. With sync "always", the bare loop appends 4 KiB to a file and syncs the file.
func durableTasks(b *bench) error {
	for _, sync := range []string{"interval", "always"} {
		if err := b.smallTasks(sync); err != nil {
			return fmt.Errorf("sync %s: %w", sync, err)
		}
	}
	return nil
}

func (b *bench) smallTasks(sync string) (err error) {
	s, err := b.taskServer(sync, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	c := newTaskClient(s.addr)
	name := fmt.Sprintf("small tasks, submit to result, %d clients, sync %s", taskClients, sync)
	rate := func(d time.Duration) (float64, error) { return c.rate(taskClients, d) }
	row, syncs := Row{}, 0.
	if sync == "always" {
		bare := func(d time.Duration) (v float64, err error) { syncs, err = b.syncs(d); return syncs, err }
		if row, err = b.pair(name+", against fsyncs", "/s", bare, rate); err != nil {
			return err
		}
		row = row.atLeast(0.5 / syncsPerTask)
	} else {
		var rates []float64
		for range b.rounds {
			r, err := rate(2 * b.round)
			if err != nil {
				return err
			}
			rates = append(rates, r)
		}
		row = Row{Name: name, Unit: "/s", Millrace: median(rates), Limit: ">= 2000"}
		row.Met = row.Millrace >= 2000
	}
	b.add(row)

	var waits []float64
	for range 50 * b.rounds {
		ms, err := c.submitToStart()
		if err != nil {
			return err
		}
		waits = append(waits, ms)
	}
	slices.Sort(waits)
	p50, p99 := 5., 20.
	if sync == "always" {
		p50 += 3 * 1000 / syncs
		p99 += 3 * 1000 / syncs
	}
	for _, q := range []struct {
		name  string
		value float64
		limit float64
	}{{"p50", waits[len(waits)/2], p50}, {"p99", waits[len(waits)*99/100], p99}} {
		b.add(Row{Name: fmt.Sprintf("submit to start of a task, %s, sync %s", q.name, sync), Unit: "ms",
			Millrace: q.value, Limit: fmt.Sprintf("<= %.1f", q.limit), Met: q.value <= q.limit})
	}
	return nil
}

// syncs returns the fsyncs a second of a loop that appends 4 KiB to a file.
func (b *bench) syncs(d time.Duration) (float64, error) {
	f, err := os.CreateTemp(b.dir, "syncs")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	block := make([]byte, 4<<10)
	return throughputOf(1, d, func(more func() bool, done func(int)) error {
		for more() {
			if _, err := f.Write(block); err != nil {
				return err
			}
			if err := f.Sync(); err != nil {
				return err
			}
			done(1)
		}
		return nil
	})
}

// taskServer starts a server with an empty data folder, in a process of its own.
func (b *bench) taskServer(sync, lines string) (*serverProcess, error) {
	dir, err := os.MkdirTemp(b.dir, "tasks")
	if err != nil {
		return nil, err
	}
	return b.taskServerOf(filepath.Join(dir, "data"), sync, lines)
}

func (b *bench) taskServerOf(folder, sync, lines string) (*serverProcess, error) {
	return startServer(fmt.Sprintf("data: %s\ntasks: {sync: %s, max_waiting: 200000}\nmodels: [{name: echo, "+
		"source: identity, instances: 2}]\n%s", folder, sync, lines))
}

// taskClient calls the routes of tasks.
type taskClient struct {
	base   string
	client *fasthttp.HostClient
}

func newTaskClient(addr string) *taskClient {
	return &taskClient{base: "http://" + addr + "/v2/tasks",
		client: &fasthttp.HostClient{Addr: addr, MaxConns: 2 * taskClients, MaxIdleConnDuration: time.Minute}}
}

// taskState is the measured part of a task.
type taskState struct {
	ID      string        `json:"id"`
	State   string        `json:"state"`
	Started time.Time     `json:"started"`
	Error   tasks.Failure `json:"error"`
}

// do sends a request and reads a JSON answer into to; nil = the body is not read.
func (c *taskClient) do(method, path, body string, to any) error {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(method)
	req.SetRequestURI(c.base + path)
	if body != "" {
		req.Header.SetContentType("application/json")
		req.SetBodyString(body)
	}
	return c.send(req, resp, to)
}

// send sends a request and reads a JSON answer into to; nil = the body is not read.
func (c *taskClient) send(req *fasthttp.Request, resp *fasthttp.Response, to any) error {
	if err := c.client.Do(req, resp); err != nil {
		return err
	}
	if resp.StatusCode()/100 != 2 {
		return fmt.Errorf("%s %s: %d: %.200s", req.Header.Method(), req.RequestURI(), resp.StatusCode(), resp.Body())
	}
	if to == nil {
		return nil
	}
	return json.Unmarshal(resp.Body(), to)
}

// submit submits a small task.
func (c *taskClient) submit(query string) (t taskState, err error) {
	return t, c.do("POST", "?model=echo"+query, taskRequest, &t)
}

// wait waits for the end of a task.
func (c *taskClient) wait(id string) (t taskState, err error) {
	for t.State == "" || t.State == "queued" || t.State == "running" {
		if err := c.do("GET", "/"+id+"?wait=60s", "", &t); err != nil {
			return t, err
		}
	}
	if t.State != "finished" {
		err = fmt.Errorf("a task is %s: %s", t.State, t.Error.Message)
	}
	return t, err
}

// rate returns tasks a second of clients that submit a task, wait for the end, and fetch the result.
func (c *taskClient) rate(clients int, d time.Duration) (float64, error) {
	return throughputOf(clients, d, func(more func() bool, done func(int)) error {
		for more() {
			t, err := c.submit("")
			if err == nil {
				_, err = c.wait(t.ID)
			}
			if err == nil {
				err = c.do("GET", "/"+t.ID+"/result", "", nil)
			}
			if err != nil {
				return err
			}
			done(1)
		}
		return nil
	})
}

// submitToStart returns the milliseconds from the submission of a task to the begin of the run.
func (c *taskClient) submitToStart() (float64, error) {
	began := time.Now()
	t, err := c.submit("")
	if err == nil {
		t, err = c.wait(t.ID)
	}
	return t.Started.Sub(began).Seconds() * 1000, err
}
