package workers

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Processes counts the child processes and containers of the instances of a model and version. Processes is safe for
// concurrent use.
type Processes struct {
	running atomic.Int64
	memory  atomic.Int64
	started atomic.Uint64

	containers        atomic.Int64 // running
	containersStarted atomic.Uint64

	mu    sync.Mutex
	ended map[string]uint64
}

// Started counts a started process.
func (p *Processes) Started() {
	p.started.Add(1)
	p.running.Add(1)
}

// Ended counts the end of a process by cause, from a small set of causes.
func (p *Processes) Ended(cause string) {
	p.running.Add(-1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		p.ended = map[string]uint64{}
	}
	p.ended[cause]++
}

// AddMemory adds to the resident memory of the running processes; an ended process subtracts all its additions.
func (p *Processes) AddMemory(bytes int64) { p.memory.Add(bytes) }

// ContainerStarted counts a started container.
func (p *Processes) ContainerStarted() {
	p.containersStarted.Add(1)
	p.containers.Add(1)
}

// ContainerEnded counts the end of a container.
func (p *Processes) ContainerEnded() { p.containers.Add(-1) }

// ProcessStats are the child processes and containers of a model and version.
type ProcessStats struct {
	Running int
	Memory  int64             // resident, at the last measurement
	Started uint64            // since the model was loaded
	Ended   map[string]uint64 // the same, by cause

	Containers        int    // running
	ContainersStarted uint64 // since the model was loaded
}

func (p *Processes) stats() ProcessStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return ProcessStats{Running: int(p.running.Load()), Memory: p.memory.Load(), Started: p.started.Load(),
		Ended: maps.Clone(p.ended), Containers: int(p.containers.Load()),
		ContainersStarted: p.containersStarted.Load()}
}

// shared is a value shared by the instances of a group.
type shared struct {
	once  sync.Once
	value any
}

// get returns the value, made by the first call.
func (s *shared) get(make func() any) any {
	s.once.Do(func() { s.value = make() })
	return s.value
}
