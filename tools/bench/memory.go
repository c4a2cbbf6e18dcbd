package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// idleStreams are enough to make shared memory negligible.
var idleStreams = 1000

// memory measures the server's allocations for each frame, and the memory of an idle stream.
func memory(b *bench) error {
	bare, end, err := echoServer(false)
	if err != nil {
		return err
	}
	defer end()
	ours := b.server.stream("identity", wsQuery)
	var allocs, bytes [2][]float64
	for range max(b.rounds/3, 1) {
		for i, url := range []string{bare, ours} {
			n, size, err := b.perFrame(url)
			if err != nil {
				return err
			}
			allocs[i], bytes[i] = append(allocs[i], n), append(bytes[i], size)
		}
	}
	// Both include allocations of the WebSocket library.
	own := Row{Name: "allocations a frame, WebSocket 30 KB", Unit: "allocations", Bare: median(allocs[0]),
		Millrace: median(allocs[1]), Limit: "<= bare + 5"}
	own.Met = own.Millrace-own.Bare <= 5
	b.add(own)
	own = Row{Name: "bytes allocated a frame, WebSocket 30 KB", Unit: "bytes", Bare: median(bytes[0]),
		Millrace: median(bytes[1]), Limit: "<= bare + 1024"}
	own.Met = own.Millrace-own.Bare <= 1024
	b.add(own)

	row := Row{Name: fmt.Sprintf("resident memory of an idle stream (%d)", idleStreams), Unit: "KB", Limit: "<= 30"}
	for i, url := range []string{bare, b.server.stream("identity", "?policy=latest")} {
		kb, err := idle(url)
		if err != nil {
			return err
		}
		*[]*float64{&row.Bare, &row.Millrace}[i] = kb
	}
	row.Met = row.Millrace <= 30
	b.add(row)
	return nil
}

// perFrame returns allocations and bytes of this process per frame sent by a client process.
func (b *bench) perFrame(url string) (allocs, bytes float64, err error) {
	c, err := startChild()
	if err != nil {
		return 0, 0, err
	}
	defer c.end()
	if _, err = c.do(job{Open: url, Size: 30 << 10}); err != nil {
		return 0, 0, err
	}
	if _, err = c.do(job{Pump: b.round}); err != nil { // to fill the pools
		return 0, 0, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a, err := c.do(job{Pump: 2 * b.round})
	runtime.ReadMemStats(&after)
	if err == nil && a.Frames == 0 {
		err = fmt.Errorf("no frame was answered")
	}
	n := float64(a.Frames)
	return float64(after.Mallocs-before.Mallocs) / n, float64(after.TotalAlloc-before.TotalAlloc) / n, err
}

// idle returns the resident KB of this process for each of idleStreams silent connections of a client process.
func idle(url string) (float64, error) {
	c, err := startChild()
	if err != nil {
		return 0, err
	}
	defer c.end()
	before, err := resident(true)
	if err != nil {
		return 0, err
	}
	if _, err := c.do(job{Open: url, Size: 1, Idle: idleStreams}); err != nil {
		return 0, err
	}
	after, err := resident(true)
	if err != nil {
		return 0, err
	}
	_, err = c.do(job{Close: true})
	return (after - before) / 1024 / float64(idleStreams), err
}

// resident returns the bytes of this process in memory, after collecting
// garbage when settled.
func resident(settled bool) (float64, error) {
	if settled {
		debug.FreeOSMemory()
		debug.FreeOSMemory() // a sync.Pool keeps its items through one collection
	}
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("resident memory can be read on Linux only: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/self/statm reads %q", text)
	}
	pages, err := strconv.ParseFloat(fields[1], 64)
	return pages * float64(os.Getpagesize()), err
}
