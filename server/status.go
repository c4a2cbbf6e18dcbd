package server

import (
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/client"
	"millrace/ingest/sources"
	"millrace/ingest/streams"
	"millrace/stream"
	"millrace/workers"
)

// statusRoute returns the state of the server as JSON, without metrics enabled.
const statusRoute = "/v2/status"

func (s *Server) statusRoutes(app *fiber.App) {
	app.Get(statusRoute, func(c *fiber.Ctx) error {
		if err := noQuery(c); err != nil {
			return err
		}
		return c.JSON(s.status())
	})
}

// noQuery refuses query options on a route without options.
func noQuery(c *fiber.Ctx) error {
	var err error
	c.Context().QueryArgs().VisitAll(func(k, _ []byte) {
		err = stream.Errorf(stream.InvalidArgument, string(k), "%s has no options", c.Route().Path)
	})
	return err
}

// status reads the state of all parts.
func (s *Server) status() client.Status {
	now := time.Now()
	st := client.Status{
		Version: s.cfg.Version, State: s.stateWord(), Time: now, Started: s.life.created,
		UptimeSeconds: now.Sub(s.life.created).Seconds(),
		Process:       s.processStatus(), Connections: map[string]client.ConnectionStatus{}, Sessions: map[string]int{},
		Streams: map[string]int{},
		Models:  []client.ModelStatus{},
	}
	m := s.memory.Stats()
	st.Memory = client.MemoryStatus{Budget: m.Budget, Leased: m.Leased, Reserved: m.Reserved, Denied: m.Denied}
	for name, l := range s.connections.stats() {
		st.Connections[name] = client.ConnectionStatus{Open: l.Open, Refused: l.Refused + l.RefusedAddress +
			l.RefusedNoFile, Shed: l.Shed, Failed: l.Failed}
	}
	for adapter, n := range s.measure().Sessions {
		st.Sessions[adapter] = n
	}
	if adapterOf[*streams.Adapter](s.listening) != nil {
		for _, state := range sources.States {
			st.Streams[string(state)] = 0
		}
		st.Streams["paused"] = 0
		for _, x := range s.serverStreams().Streams {
			st.Streams[string(x.State)]++
			if x.Paused {
				st.Streams["paused"]++
			}
		}
	}
	for _, g := range s.models.Groups() {
		st.Models = append(st.Models, modelStatus(g))
	}
	return st
}

// stateWord returns the server's state in one word.
func (s *Server) stateWord() string {
	switch st := (backend{s}).State(); {
	case st.Draining:
		return "draining"
	case !s.life.isLoaded():
		return "starting"
	case !st.Ready:
		return "degraded"
	}
	return "ready"
}

func modelStatus(g *workers.Group) client.ModelStatus {
	st, f := g.Stats(), g.Figures()
	return client.ModelStatus{
		Name: st.Model.Name, Version: st.Model.Version, Kind: g.Config().Kind, State: st.State, Reason: st.Reason,
		MaxBatch: st.Model.MaxBatch,
		Workers:  st.Workers, Busy: st.Busy, Quarantined: st.Quarantined, Restarts: st.Restarts,
		Streams: st.Streams, Waiting: st.Waiting, OldestMS: float64(st.Oldest.Microseconds()) / 1000,
		Batches:  st.Batches,
		Accepted: st.Frames.Accepted, Results: st.Frames.Results, InFlight: st.Frames.InFlight,
		Drops: counted(st.Frames.Drops), Errors: counted(st.Frames.Errors), Refused: counted(st.Frames.Refused),
		Unsendable: counted(st.Frames.Unsendable),
		BatchRows:  client.Histogram(f.Rows),
		StagesUS: client.StageHistograms{
			Queue: client.Histogram(f.Queue), Prepare: client.Histogram(f.Prepare), Run: client.Histogram(f.Run),
			Total: client.Histogram(f.Total),
		},
	}
}

// counted returns the counts above 0.
func counted[K ~string](all map[K]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for k, n := range all {
		if n > 0 {
			out[string(k)] = n
		}
	}
	return out
}

// heapBytes is the runtime's metric of live and unswept objects; reading the metric does not stop the program, unlike
// runtime.ReadMemStats.
const heapBytes = "/memory/classes/heap/objects:bytes"

func (s *Server) processStatus() client.ProcessStatus {
	p := client.ProcessStatus{Processors: s.turns.Count(), Goroutines: runtime.NumGoroutine(),
		ResidentBytes: residentBytes()}
	heap := []metrics.Sample{{Name: heapBytes}}
	metrics.Read(heap)
	if heap[0].Value.Kind() == metrics.KindUint64 {
		p.HeapBytes = int64(heap[0].Value.Uint64())
	}
	var use syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &use) == nil {
		p.CPUSeconds = time.Duration(use.Utime.Nano() + use.Stime.Nano()).Seconds()
	}
	return p
}

// residentBytes returns the process's resident memory, or 0 on systems without the value.
func residentBytes() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	if fields := strings.Fields(string(text)); len(fields) > 1 {
		pages, _ := strconv.ParseInt(fields[1], 10, 64)
		return pages * int64(os.Getpagesize())
	}
	return 0
}
