package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"millrace/client"
	"millrace/internal/ctxio"
	"millrace/internal/onnxfile"
	"millrace/stream"
)

// fewReloads is the number of swaps whose resident memory is compared with the memory after all swaps.
const fewReloads = 10

// reloadRatio is the largest allowed ratio of resident memory to the memory after fewReloads.
const reloadRatio = 1.2

// Reloads is the resident memory of a server after many swaps of an ONNX model of 1.2 MB, over REST.
type Reloads struct {
	Swaps int     `json:"swaps"`
	Few   float64 `json:"memory_after_10"` // bytes
	Many  float64 `json:"memory_at_the_end"`
	Ratio float64 `json:"ratio"`
	Met   bool    `json:"met"`
}

func (r *Reloads) write(out io.Writer) {
	fmt.Fprintf(out, "resident memory after %d swaps of an ONNX model: %.1f MiB, after %d %.1f MiB: %.2f times, "+
		"limit %.1f\n",
		r.Swaps, r.Many/mib, fewReloads, r.Few/mib, r.Ratio, reloadRatio)
}

// reloads starts a server with one model and swaps the model repeatedly.
func reloads(ctx context.Context, o options) (r *Reloads, err error) {
	dir, err := os.MkdirTemp("", "millrace-soak")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s := &site{dir: dir}
	if err := os.Mkdir(s.path("tmp"), 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.path("m.onnx"), onnxfile.MLP(256, 512, 256, 2), 0o600); err != nil {
		return nil, err
	}
	text := fmt.Sprintf("http: 127.0.0.1:0\ngrpc: 127.0.0.1:0\nlog: {file: %s}\nmodels:\n  - {name: m, source: %s}\n",
		s.path("log"), s.path("m.onnx"))
	if err := os.WriteFile(s.path("millrace.yaml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	p, err := serve(o.binary, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	return p.swap(ctx, o)
}

// swap swaps the model and measures the memory.
func (p *program) swap(ctx context.Context, o options) (*Reloads, error) {
	c, err := client.New(p.http)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	r := &Reloads{Swaps: o.reloads}
	for i := 1; i <= o.reloads; i++ {
		if _, err := c.Load(ctx, "m", stream.Params{"swap": true}); err != nil {
			return nil, fmt.Errorf("swap %d: %w", i, err)
		}
		if i%100 == 0 {
			fmt.Fprintf(o.progress, "%d of %d swaps\n", i, o.reloads)
		}
		if to := map[int]*float64{fewReloads: &r.Few, o.reloads: &r.Many}[i]; to != nil {
			if *to, err = p.settled(ctx); err != nil {
				return nil, err
			}
		}
	}
	r.Ratio = r.Many / r.Few
	r.Met = r.Ratio <= reloadRatio
	return r, nil
}

// settledFor is how long the memory is watched: the runtime returns free memory in the background.
const settledFor = 10 * time.Second

// settled returns the least resident memory within a time.
func (p *program) settled(ctx context.Context) (float64, error) {
	least := 0.
	for limit := time.Now().Add(settledFor); time.Now().Before(limit) &&
		ctx.Err() == nil; ctxio.Sleep(ctx, 100*time.Millisecond) {
		bytes, err := resident(p.pid())
		if err != nil {
			return 0, err
		}
		if n := float64(bytes); least == 0 || n < least {
			least = n
		}
	}
	return least, ctx.Err()
}
