package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

//go:embed python.py
var pythonServices []byte

const (
	pythonRows  = 4
	pythonBytes = 300 << 10 // of a row
	// pythonCallers keep two batches in flight: one running, one waiting.
	pythonCallers = 3 * pythonRows
)

// pythonProgram writes the services for the rows about Python, and returns the path.
func (b *bench) pythonProgram() (string, error) {
	path := filepath.Join(b.dir, "services.py")
	return path, os.WriteFile(path, pythonServices, 0o600)
}

// withPython starts a server with models of the services, and ends the server after do. models gets a function that
// configures a model from its name, the class of the service, and the number of instances.
func (b *bench) withPython(adjust func(*server.Config),
	models func(model func(name, class string, instances int, p stream.Params) workers.Config) []workers.Config,
	do func(*target) error) error {
	path, err := b.pythonProgram()
	if err != nil {
		return err
	}
	t, err := serve(adjust, models(func(name, class string, instances int, p stream.Params) workers.Config {
		params := stream.Params{"class": class, "python": "/usr/bin/python3"}
		for k, v := range p {
			params[k] = v
		}
		return workers.Config{Name: name, Source: path, Instances: instances, Params: params}
	})...)
	if err != nil {
		return err
	}
	return errors.Join(do(t), t.end())
}

// python compares calls of a service that returns its input with a bare loop that drives the same child process, one
// batch after the other, over the same shared memory; and with the same service over a socket.
func python(b *bench) error {
	path, err := b.pythonProgram()
	if err != nil {
		return err
	}
	bare, err := startBarePython(path, "Identity", pythonRows, pythonBytes)
	if err != nil {
		return err
	}
	defer bare.close()
	return b.withPython(nil, func(model func(string, string, int, stream.Params) workers.Config) []workers.Config {
		return []workers.Config{
			model("shared", "Identity", 1, nil),
			model("piped", "Identity", 1, stream.Params{"shared_memory": false}),
		}
	}, func(t *target) error {
		ours := func(d time.Duration) (float64, error) { return t.pythonCallers("shared", d) }
		piped := func(d time.Duration) (float64, error) { return t.pythonCallers("piped", d) }
		row, err := b.pair("Python identity, 4 x 300 KB, against a bare loop with the same child", "rows/s", bare.rate,
			ours)
		if err != nil {
			return err
		}
		b.add(row.atLeast(0.90))
		if row, err = b.pair("Python identity, 4 x 300 KB, shared memory against the socket", "rows/s", piped,
			ours); err != nil {
			return err
		}
		b.add(row.atLeast(3))
		return nil
	})
}

// pythonCallers calls a model natively with one row at a time, and returns rows per second.
func (t *target) pythonCallers(model string, d time.Duration) (float64, error) {
	client, ctx := t.Native(), context.Background()
	return throughputOf(pythonCallers, d, func(more func() bool, done func(int)) error {
		in := []stream.Tensor{{Name: "x", Datatype: stream.Uint8, Shape: []int{1, pythonBytes},
			Data: make([]byte, pythonBytes)}}
		for more() {
			r, err := client.Infer(ctx, model, in)
			if err != nil {
				return err
			}
			r.Release()
			done(1)
		}
		return nil
	})
}

// pythonSleep calls a service that sleeps for a thirtieth of a second, in replicas, through its route, and compares
// the requests per second with the same number of replicas without a server.
func pythonSleep(b *bench) error {
	for _, c := range []struct {
		replicas int
		least    float64 // requests/s
	}{{1, 29.4}, {4, 117}, {8, 235}, {16, 455}} {
		err := b.withPython(nil, func(model func(string, string, int, stream.Params) workers.Config) []workers.Config {
			return []workers.Config{model("sleep", "Sleep", c.replicas, nil)}
		}, func(t *target) error {
			p := newRequester("http://"+t.addr+"/apps/sleep/infer", "application/json", []byte(`{"n":1}`), nil)
			var rates []float64
			for range max(b.rounds/3, 1) {
				r, err := p.rateOf(4*c.replicas, max(4*b.round, time.Duration(c.replicas)*50*time.Millisecond))
				if err != nil {
					return err
				}
				rates = append(rates, r)
			}
			ideal := 30 * float64(c.replicas)
			row := Row{Name: fmt.Sprintf("Python service that sleeps 1/30 s, %d replicas", c.replicas),
				Unit: "requests/s", Bare: ideal, Millrace: median(rates)}
			row.Ratio = row.Millrace / ideal
			row.Limit, row.Met = fmt.Sprintf(">= %g/s", c.least), row.Millrace >= c.least
			b.add(row)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pythonJSON compares a service for small JSON values with the same function behind FastAPI and uvicorn, as a
// coroutine and as a function, which FastAPI runs in threads.
func pythonJSON(b *bench) error {
	path, err := b.pythonProgram()
	if err != nil {
		return err
	}
	return b.withPython(nil, func(model func(string, string, int, stream.Params) workers.Config) []workers.Config {
		return []workers.Config{model("small", "Small", 1, nil)}
	}, func(t *target) error {
		body := []byte(`{"text":"a text of a few words","numbers":[1,2,3,4]}`)
		ours := newRequester("http://"+t.addr+"/apps/small/infer", "application/json", body, nil)
		for _, c := range []struct {
			name, app string
			limit     float64
		}{{"def", "threads", 3}, {"async def", "coroutines", 0}} {
			addr, _, end, err := startUvicorn(path, c.app)
			if err != nil {
				return err
			}
			bare := newRequester("http://"+addr+"/infer", "application/json", body, nil)
			row, err := b.pair(fmt.Sprintf("Python service with little JSON, against FastAPI and uvicorn (%s)",
				c.name), "requests/s", bare.rate, ours.rate)
			end()
			if err != nil {
				return err
			}
			b.add(row.atLeast(c.limit))
		}
		return nil
	})
}

// pythonRestart kills the child of a service with a setup of setupTime, and measures the time
// until the next answer, beyond the setup.
func pythonRestart(b *bench) error {
	const setup, limit = 300 * time.Millisecond, 500 * time.Millisecond
	return b.withPython(nil, func(model func(string, string, int, stream.Params) workers.Config) []workers.Config {
		return []workers.Config{model("pid", "Pid", 1, nil)}
	}, func(t *target) error {
		client, ctx := t.Native(), context.Background()
		ask := func() (int, error) {
			r, err := client.InferBytes(ctx, "pid", stream.Opaque, []byte("x"))
			if err != nil {
				return 0, err
			}
			defer r.Release()
			return strconv.Atoi(string(r.Outputs[0].Data[4:]))
		}
		var times []float64
		for range b.rounds {
			pid, err := ask()
			if err != nil {
				return err
			}
			began := time.Now()
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				return err
			}
			// the first answers are errors: the worker is gone
			for next := pid; next == pid || err != nil; next, err = ask() {
				if time.Since(began) > 30*time.Second {
					return fmt.Errorf("the worker did not return: %w", err)
				}
				time.Sleep(time.Millisecond)
			}
			times = append(times, float64(time.Since(began)-setup)/float64(time.Millisecond))
			time.Sleep(2 * time.Second) // so that the back-off of restarts begins anew
		}
		row := Row{Name: "Python worker killed: time until the next answer, beyond its setup of 300 ms", Unit: "ms",
			Millrace: median(times)}
		row.Limit, row.Met = fmt.Sprintf("< %d ms", limit/time.Millisecond),
			row.Millrace < float64(limit/time.Millisecond)
		b.add(row)
		return nil
	})
}

// pythonVideo offers streams of video to a class that gets the pictures in batches.
func pythonVideo(b *bench) error {
	f, err := renderClip(videoW, videoH)
	if err != nil {
		return err
	}
	defer f.remove()
	return b.withPython(nil, func(model func(string, string, int, stream.Params) workers.Config) []workers.Config {
		return []workers.Config{model("bright", "Bright", 2, nil)}
	}, func(t *target) error { return b.cameras(t, f, "bright", "Python class", 0, 30) })
}
