package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"millrace/client"
)

// serverProcess is a server in a process of its own, so that processor time and memory of the server and its ffmpeg
// processes are separate from this program's.
type serverProcess struct {
	*child
	addr   string
	client *client.Client
}

// startServer starts a server with the given lines of configuration, and the lines for addresses and log.
func startServer(lines string) (*serverProcess, error) {
	c, err := startChild()
	if err != nil {
		return nil, err
	}
	s := &serverProcess{child: c}
	a, err := c.do(job{Serve: "http: 127.0.0.1:0\ngrpc: \"off\"\nlog: {level: error}\n" + lines})
	if err == nil {
		s.addr = a.Addr
		s.client, err = client.New(s.addr)
	}
	if err != nil {
		return nil, errors.Join(err, c.end())
	}
	return s, nil
}

// usage returns the usage of the server and its ffmpeg processes until now.
func (s *serverProcess) usage() (use treeUsage, err error) { return usageOf(s.cmd.Process.Pid) }

// treeUsage is the usage of a process and its descendants: processor time, and memory in bytes, with memory mapped by
// several processes divided among them.
type treeUsage struct {
	own, children time.Duration
	pss           float64
}

// usageOf reads the usage of a process and its descendants. Ended processes count if waited for by their parents.
func usageOf(root int) (use treeUsage, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return use, fmt.Errorf("processor time of processes can be read on Linux only: %v", err)
	}
	type process struct {
		parent        int
		own, children time.Duration
	}
	all := map[int]process{}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // has ended
		}
		// The name in brackets may hold anything.
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(f) < 15 {
			return use, fmt.Errorf("%s reads %q", path, text)
		}
		var n [15]int
		for _, i := range []int{1, 11, 12, 13, 14} {
			if n[i], err = strconv.Atoi(f[i]); err != nil {
				return use, fmt.Errorf("%s: %w", path, err)
			}
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return use, err
		}
		all[pid] = process{n[1], time.Duration(n[11]+n[12]) * tick, time.Duration(n[13]+n[14]) * tick}
	}
	if _, ok := all[root]; !ok {
		return use, fmt.Errorf("process %d has ended", root)
	}
	for pid, p := range all {
		for at := pid; at != root; at = all[at].parent {
			if at <= 1 {
				pid = 0
				break
			}
		}
		switch pid {
		case 0:
			continue
		case root:
			use.own = p.own
		default:
			use.children += p.own
		}
		use.children += p.children
		pss, err := proportionalSet(pid)
		if err != nil {
			return use, err
		}
		use.pss += pss
	}
	return use, nil
}

// proportionalSet returns the memory of a process in bytes, 0 if the process has ended.
func proportionalSet(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, nil
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) == 3 && f[0] == "Pss:" {
			kb, err := strconv.ParseFloat(f[1], 64)
			return kb * 1024, err
		}
	}
	return 0, nil // about to end
}

// answered waits until each stream has at least n results.
func (s *serverProcess) answered(n uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		list, err := s.client.ServerStreams(ctx)
		if err != nil {
			return err
		}
		least := uint64(0)
		for i, st := range list {
			if st.State == "failed" || st.Errors > 0 {
				return fmt.Errorf("stream %s: %+v", st.Name, st)
			}
			if i == 0 || st.Results < least {
				least = st.Results
			}
		}
		if least >= n {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// cost is a server's processor time in ms for each frame of video.
type cost struct {
	server, ffmpeg float64
	frames         int
	shed           float64 // share of dropped frames
	pss            float64 // bytes, at the end
}

func (c cost) total() float64 { return c.server + c.ffmpeg }

// costOf measures the cost of the running streams for a time.
func (s *serverProcess) costOf(d time.Duration) (c cost, err error) {
	var uses [2]treeUsage
	var results, dropped [2]uint64
	for i := range uses {
		if i > 0 {
			time.Sleep(d)
		}
		if uses[i], err = s.usage(); err != nil {
			return c, err
		}
		list, err := s.client.ServerStreams(context.Background())
		if err != nil {
			return c, err
		}
		for _, st := range list {
			results[i] += st.Results
			for _, n := range st.Drops {
				dropped[i] += n
			}
			if st.Errors > 0 {
				return c, fmt.Errorf("frames failed: %+v", st)
			}
		}
	}
	c = costBetween(uses[0], uses[1], int(results[1]-results[0]), float64(dropped[1]-dropped[0]))
	if c.frames == 0 {
		return c, errors.New("no frame was answered")
	}
	return c, nil
}

// costBetween divides the usage between two moments by the answered frames.
func costBetween(before, after treeUsage, frames int, dropped float64) cost {
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(frames) }
	return cost{
		server: ms(after.own - before.own), ffmpeg: ms(after.children - before.children),
		frames: frames, shed: dropped / (dropped + float64(frames)), pss: after.pss,
	}
}
