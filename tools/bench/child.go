package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"millrace/client/load"
)

// childArg makes this program a client in a process of its own, so that processor time, memory and allocations
// measure the server alone.
const childArg = "-child"

// job is a request to a child process, sent as JSON.
type job struct {
	Open  string        `json:"open,omitempty"`  // connect wsConns pumps to this address
	Size  int           `json:"size,omitempty"`  // of their messages
	Pump  time.Duration `json:"pump,omitempty"`  // run them this long
	Idle  int           `json:"idle,omitempty"`  // with Open: connect this many instead, and leave them idle
	Hold  *hold         `json:"hold,omitempty"`  // open streams and leave them idle
	Close bool          `json:"close,omitempty"` // close what is open
	Load  []load.Config `json:"load,omitempty"`  // run these loads, at the same time
	Serve string        `json:"serve,omitempty"` // run a server with this configuration, until the child ends
	Play  *play         `json:"play,omitempty"`  // open streams of video; Pump sends
	Peer  *handWritten  `json:"peer,omitempty"`  // run a server without Millrace, until the child ends
	// Assault runs attackers for their time.
	Assault *assault `json:"assault,omitempty"`
}

// answer is the child's reply to a job.
type answer struct {
	Err     string         `json:"err,omitempty"`
	Frames  int64          `json:"frames,omitempty"`  // of Pump: answered frames
	Opened  int            `json:"opened,omitempty"`  // streams, of Hold
	Dropped int64          `json:"dropped,omitempty"` // frames, of Pump with Play
	Addr    string         `json:"addr,omitempty"`    // of HTTP, of Serve and Peer
	GRPC    string         `json:"grpc,omitempty"`    // address of gRPC, of Serve
	Reports []*load.Report `json:"reports,omitempty"` // of Load
	Streams [][]uint64     `json:"streams,omitempty"` // PerStream of each report, which its JSON leaves out
	// Done has the counts of the attackers, by kind.
	Done map[string]int64 `json:"done,omitempty"`
}

func childMain(in io.Reader, out io.Writer) error {
	d, e := json.NewDecoder(in), json.NewEncoder(out)
	var open openStreams
	for {
		var j job
		if err := d.Decode(&j); err == io.EOF {
			open.close()
			return open.endServer()
		} else if err != nil {
			return err
		}
		a, err := j.do(&open)
		if err != nil {
			a.Err = err.Error()
		}
		if err := e.Encode(a); err != nil {
			return err
		}
	}
}

// openStreams are the streams kept open by a child between jobs.
type openStreams struct {
	echoClient *echoClient
	held       *held
	player     *player
	server     *target
	peer       *peer
}

func (k *openStreams) close() {
	if k.echoClient != nil {
		k.echoClient.close()
	}
	if k.held != nil {
		k.held.close()
	}
	if k.player != nil {
		k.player.close()
	}
	*k = openStreams{server: k.server, peer: k.peer}
}

func (k *openStreams) endServer() error {
	switch {
	case k.server != nil:
		return k.server.end()
	case k.peer != nil:
		return k.peer.end()
	}
	return nil
}

func (j *job) do(open *openStreams) (a answer, err error) {
	switch {
	case j.Open != "":
		n := wsConns
		if j.Idle > 0 {
			n = j.Idle
		}
		open.echoClient, err = openEchoClient(j.Open, j.Size, n, nil)
	case j.Pump > 0 && open.echoClient != nil:
		_, err = open.echoClient.rate(j.Pump)
		a.Frames = open.echoClient.total.Load()
	case j.Play != nil:
		open.close()
		open.player, err = j.Play.open()
	case j.Pump > 0 && open.player != nil:
		a.Frames, a.Dropped, err = open.player.run(j.Pump)
	case j.Serve != "":
		open.server, err = serveText(j.Serve)
		if err == nil {
			a.Addr, a.GRPC = open.server.addr, open.server.Addr("grpc")
		}
	case j.Peer != nil:
		open.peer, err = j.Peer.start()
		if err == nil {
			a.Addr = open.peer.addr
		}
	case j.Hold != nil:
		open.close()
		open.held = &held{}
		err = open.held.keep(j.Hold)
		a.Opened = open.held.opened
	case j.Assault != nil:
		a.Done, err = j.Assault.run()
	case j.Close:
		open.close()
	case j.Load != nil:
		err = a.load(j.Load)
	default:
		err = errors.New("the job is empty")
	}
	return a, err
}

func (a *answer) load(cfgs []load.Config) error {
	a.Reports, a.Streams = make([]*load.Report, len(cfgs)), make([][]uint64, len(cfgs))
	errs := make([]error, len(cfgs))
	var wg sync.WaitGroup
	for i, cfg := range cfgs {
		wg.Go(func() {
			if a.Reports[i], errs[i] = load.Run(context.Background(), cfg); errs[i] == nil {
				a.Streams[i] = a.Reports[i].PerStream
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// child is a client process.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder
}

func startChild() (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, childArg)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &child{cmd: cmd, in: in, enc: json.NewEncoder(in), dec: json.NewDecoder(out)}, nil
}

// do sends a job and waits for the answer.
func (c *child) do(j job) (a answer, err error) {
	if err = c.enc.Encode(j); err == nil {
		err = c.dec.Decode(&a)
	}
	if err == nil && a.Err != "" {
		err = errors.New(a.Err)
	}
	if err != nil {
		err = fmt.Errorf("client process: %w", err)
	}
	return a, err
}

// load runs loads at the same time.
func (c *child) load(cfgs ...load.Config) ([]*load.Report, error) {
	a, err := c.do(job{Load: cfgs})
	if err != nil {
		return nil, err
	}
	for i, r := range a.Reports {
		r.PerStream = a.Streams[i]
	}
	return a.Reports, nil
}

// end closes the child's input, which ends the child, and waits.
func (c *child) end() error {
	c.in.Close()
	return c.cmd.Wait()
}
