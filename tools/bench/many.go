package main

import (
	"fmt"
	"runtime"
	"syscall"
	"time"

	"millrace/client/load"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// The numbers of streams in many. Each stream is a descriptor here and in the client process.
var (
	manyLive = 1000  // at a frame a second
	manyIdle = 10000 // without frames
)

const (
	spareDescriptors = 500 // descriptors for everything else

	opensPerSecond             = 1000
	opensKept                  = 500 // the newest
	runningStreams, runningFPS = 16, 30
	goroutinesOfOneStream      = 2
)

// protocols are the protocols of many streams.
var protocols = []struct{ name, protocol string }{
	{"plain, a connection each", load.WebSocketProtocol},
	{fmt.Sprintf("v1, %d a connection", load.PerSession), load.V1Protocol},
}

// many measures thousands of streams: with a frame per second each, idle, and being opened while others run.
func many(b *bench) error {
	idle := descriptors(manyIdle+spareDescriptors) - spareDescriptors
	if idle < manyIdle {
		fmt.Fprintf(b.progress, "only %d descriptors may be open: ", idle+spareDescriptors)
	}
	t, err := serve(func(c *server.Config) {
		unbounded := 0 // the streams belong to a single client
		c.Limits.MaxSessions, c.Quotas.Sessions, c.Quotas.Streams = 2*(manyIdle+spareDescriptors), &unbounded,
			&unbounded
	},
		delayModel("delay", stream.Params{}), workers.Config{Name: "identity", Source: "identity", Instances: 2})
	if err != nil {
		return err
	}
	for _, way := range protocols {
		b.step("%s", way.protocol)
		for _, measure := range []func() error{
			func() error { return b.lowRate(t, way.name, way.protocol) },
			func() error { return b.idleStreamsOf(t, way.name, way.protocol, min(idle, manyIdle)) },
			func() error { return b.opening(t, way.name, way.protocol) },
		} {
			if err := measure(); err != nil {
				t.end()
				return fmt.Errorf("%s: %w", way.name, err)
			}
		}
	}
	return t.end()
}

// lowRate measures many streams at a frame a second each.
func (b *bench) lowRate(t *target, name, protocol string) error {
	c, err := startChild()
	if err != nil {
		return err
	}
	defer c.end()
	cfg := with(b.opaqueLoad(t, "delay", manyLive), "policy", "latest")
	cfg.Protocol, cfg.Rate = protocol, 1
	cfg.Duration, cfg.Warmup = 10*b.round, b.round
	before, err := resident(true)
	if err != nil {
		return err
	}
	peak, stop := make(chan float64), make(chan struct{})
	go func() { peak <- peakResident(stop) }()
	all, err := c.load(cfg)
	close(stop)
	most := <-peak
	if err != nil {
		return err
	}
	name = fmt.Sprintf("%d streams at 1 fps, %s: ", manyLive, name)
	b.add(Row{Name: name + "resident memory of one, highest", Unit: "KB", Millrace: (most - before) / 1024 /
		float64(manyLive)})
	b.add(Row{Name: name + "p99 age of an answer", Unit: "ms", Millrace: all[0].Latency.P99})
	var sum endings
	sum.add(all[0])
	b.add(sum.row(name))
	return nil
}

// idleStreamsOf measures idle streams.
func (b *bench) idleStreamsOf(t *target, name, protocol string, streams int) error {
	c, err := startChild()
	if err != nil {
		return err
	}
	defer c.end()
	before, err := resident(true)
	if err != nil {
		return err
	}
	goroutines := runtime.NumGoroutine()
	began := time.Now()
	if _, err := c.do(job{Hold: &hold{Addr: t.addr, Model: "identity", V1: protocol == load.V1Protocol,
		Streams: streams}}); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := resident(true)
	if err != nil {
		return err
	}
	more := runtime.NumGoroutine() - goroutines
	name = fmt.Sprintf("%d idle streams, %s: ", streams, name)
	memory := Row{Name: name + "resident memory of one", Unit: "KB", Millrace: (after - before) / 1024 /
		float64(streams), Limit: "<= 30"}
	memory.Met = memory.Millrace <= 30
	b.add(memory)
	running := Row{Name: name + "goroutines of one", Millrace: float64(more) / float64(streams),
		Limit: fmt.Sprintf("<= %d", goroutinesOfOneStream)}
	running.Met = more <= goroutinesOfOneStream*streams+streams/100 // 1 % for goroutines shared by all streams
	b.add(running)
	b.add(Row{Name: name + "opened", Unit: "streams/s", Millrace: float64(streams) / took.Seconds()})
	_, err = c.do(job{Close: true})
	return err
}

// opening measures the effect on running streams when others are opened and closed continuously.
func (b *bench) opening(t *target, name, protocol string) error {
	var children [2]*child
	for i := range children {
		c, err := startChild()
		if err != nil {
			return err
		}
		defer c.end()
		children[i] = c
	}
	cfg := with(b.opaqueLoad(t, "delay", runningStreams), "policy", "latest")
	cfg.Protocol, cfg.Rate = protocol, runningFPS
	cfg.Duration, cfg.Warmup = 8*b.round, b.round
	churn := &hold{Addr: t.addr, Model: "delay", V1: protocol == load.V1Protocol, Streams: opensKept,
		Rate: opensPerSecond, For: cfg.Duration}
	var quiet, busy, ratios, rates []float64
	var sum endings
	for range max(b.rounds/3, 1) {
		var age [2]float64
		for i := range age {
			opened := make(chan error, 1)
			if i == 0 {
				opened <- nil
			} else {
				go func() {
					began := time.Now()
					a, err := children[1].do(job{Hold: churn})
					rates = append(rates, float64(a.Opened)/time.Since(began).Seconds())
					opened <- err
				}()
			}
			all, err := children[0].load(cfg)
			if e := <-opened; err == nil {
				err = e
			}
			if err != nil {
				return err
			}
			age[i] = all[0].Latency.P99
			sum.add(all[0])
		}
		if _, err := children[1].do(job{Close: true}); err != nil {
			return err
		}
		quiet, busy, ratios = append(quiet, age[0]), append(busy, age[1]), append(ratios, age[1]/age[0])
	}
	name = fmt.Sprintf("%d streams at %d fps, %.0f/s opened, %s: ", runningStreams, runningFPS, median(rates), name)
	row := Row{Name: name + "p99 age, none opened before", Unit: "ms", Bare: median(quiet), Millrace: median(busy),
		Ratio: median(ratios)}
	b.add(row.atMost(2))
	b.add(sum.row(name))
	return nil
}

// descriptors raises the limit of open descriptors of this process and its children to n, if possible, and returns
// the limit.
func descriptors(n int) int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return n // opening descriptors fails otherwise
	}
	if l.Cur >= uint64(n) {
		return n
	}
	for _, most := range []uint64{max(l.Max, uint64(n)), l.Max} { // the first needs privileges
		want := syscall.Rlimit{Cur: min(uint64(n), most), Max: most}
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &want) == nil {
			return int(want.Cur)
		}
	}
	return int(l.Cur)
}
