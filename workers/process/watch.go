package process

import (
	"cmp"
	"time"

	"millrace/stream"
	"millrace/workers"
)

// watch checks the child at intervals, until the child ends.
func (w *Worker) watch(p *process) {
	tick := time.NewTicker(p.health.interval())
	defer tick.Stop()
	var looked stream.Instant // for checks not needed at each tick
	var found processTree
	for {
		select {
		case <-p.ended:
			w.handleExit(p)
			return
		case <-p.lost:
			<-p.ended
			w.handleExit(p)
			return
		case <-tick.C:
		}
		now := stream.Now()
		again := now.Sub(looked) >= time.Second || looked == 0
		if again {
			looked = now
			found = processTreeOf(p.proc.Pid())
			p.lookForOOM()
			w.segments.dropGone(w)
		}
		if again || w.spec.Settings.MemoryLimit > 0 {
			w.lookAtMemory(p, found)
		}
		p.mu.Lock()
		why, due := p.health.old(now), p.health.due(now)
		states := len(p.release) > 0
		p.mu.Unlock()
		if why != nil {
			w.replaceBy(why)
		}
		if states && p.writing.TryLock() {
			w.releaseStates(0)
			p.writing.Unlock()
		}
		if due {
			w.check(p)
		}
	}
}

// lookAtMemory measures the memory of the child and of the processes in found.
func (w *Worker) lookAtMemory(p *process, found processTree) {
	bytes := found.residentBytes()
	p.mu.Lock()
	if !p.counted { // the child has ended
		bytes = 0
	} else {
		p.counts.AddMemory(bytes - p.memory)
		p.memory = bytes
	}
	p.mu.Unlock()
	why, now := p.health.memory(bytes)
	switch {
	case now:
		p.giveUp(why.cause, why.err)
	case why != nil:
		w.replaceBy(why)
	}
}

// check asks an idle child for its health.
func (w *Worker) check(p *process) {
	if !w.tryPost([]byte(`{"type":"check"}`)) {
		return
	}
	limit := w.patience()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case m := <-p.checked:
		defer p.giveBack(m)
		var c struct {
			Type    string `json:"type"`
			OK      bool   `json:"ok"`
			Message string `json:"message"`
		}
		if err := decodeStrict(m.text, &c); err != nil {
			p.giveUp("protocol", brokeProtocol(err))
		} else if !c.OK {
			w.replaceBy(&reason{cause: failedCheck,
				err: stream.Errorf(stream.Internal, "", "the program's own watchdog reports: %s", c.Message)})
		}
	case <-p.ended:
	case <-t.C:
		p.giveUp(failedCheck, stream.Errorf(stream.Timeout, "watchdog.period",
			"the program did not answer its watchdog's question within %v", limit))
	}
}

// replaceBy asks the group to replace the child when no batch runs.
func (w *Worker) replaceBy(why *reason) {
	p := w.proc
	p.mu.Lock()
	again := p.leaving
	p.leaving = true
	p.cause = cmp.Or(p.cause, why.cause)
	p.mu.Unlock()
	if again {
		return
	}
	if why.planned {
		w.log.Info("the program is replaced by a new one", "model", w.env.Name, "after", why.err)
		w.askForAnother(nil)
		return
	}
	w.log.Warn("the program is replaced", "model", w.env.Name, "error", why.err)
	w.askForAnother(w.pauseAfter(why.cause, why.err))
}

// pauseAfter returns err, with watchdog.pause when the cause is a failed check.
func (w *Worker) pauseAfter(cause string, err error) error {
	if cause != failedCheck {
		return err
	}
	return workers.PauseBefore(w.spec.Settings.Watchdog.Pause, err)
}

// failedCheck is the cause of the end of a program whose check has failed.
const failedCheck = "watchdog"

func (w *Worker) askForAnother(err error) {
	if w.env.Replace != nil {
		w.env.Replace(err)
	}
}

// handleExit logs the reason when a child has ended without being told to, and lets the group replace the child if no
// batch was running.
func (w *Worker) handleExit(p *process) {
	if p.ordered {
		return
	}
	w.log.Error("the program has ended", "model", w.env.Name, "error", p.err)
	p.mu.Lock()
	cause := p.cause
	p.mu.Unlock()
	w.askForAnother(w.pauseAfter(cause, p.err))
}
