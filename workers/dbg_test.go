package workers

import "fmt"

func (g *Group) Debug() string {
	s := ""
	for _, st := range g.list() {
		s += fmt.Sprintf("%+v | ", st)
	}
	g.gather.Lock()
	s += fmt.Sprintf(" idle=%v starved=%v", g.intake.Idle(), g.intake.Starved())
	g.gather.Unlock()
	s += fmt.Sprintf(" parkN=%d all=%d buffers %+v limits %+v", g.parkN.Load(), len(g.instances()), g.cfg.Batching, g.cfg.Limits)
	for _, w := range g.instances() {
		s += fmt.Sprintf(" [parked=%v leave=%v phase=%d lane=%v]", w.parked.Load(), w.leave.Load(), w.phase.Load(), w.lane != nil)
	}
	return s
}
