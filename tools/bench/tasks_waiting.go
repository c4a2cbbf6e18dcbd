package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// waitingTasks is the number of tasks that wait in the rows about a long queue.
var waitingTasks = 100_000

// manyWaitingTasks measures a server with many waiting tasks: a page of the list, the start after SIGKILL, and memory.
func manyWaitingTasks(b *bench) (err error) {
	dir, err := os.MkdirTemp(b.dir, "waiting")
	if err != nil {
		return err
	}
	folder := filepath.Join(dir, "data")
	s, err := b.taskServerOf(folder, "interval", "")
	if err != nil {
		return err
	}
	killed := false
	defer func() {
		if !killed {
			err = errors.Join(err, s.end())
		}
	}()
	b.step(fmt.Sprintf("%d tasks", waitingTasks))
	c := newTaskClient(s.addr)
	left := make(chan struct{}, waitingTasks)
	for range waitingTasks {
		left <- struct{}{}
	}
	close(left)
	if _, err := throughputOf(taskClients, time.Hour, func(_ func() bool, done func(int)) error {
		for range left {
			if _, err := c.submit("&not_before=1000h"); err != nil {
				return err
			}
			done(1)
		}
		return nil
	}); err != nil {
		return err
	}
	var pages []float64
	after := ""
	for range 3 * b.rounds {
		var page struct{ Next string }
		began := time.Now()
		if err := c.do("GET", "?limit=100&state=queued"+after, "", &page); err != nil {
			return err
		}
		pages = append(pages, time.Since(began).Seconds()*1000)
		after = "&after=" + page.Next
	}
	of := fmt.Sprintf(", %d waiting tasks", waitingTasks)
	b.add(limited(Row{Name: "a page of 100 tasks" + of, Unit: "ms", Millrace: median(pages)}, 50))

	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	killed = true
	_ = s.end()
	began := time.Now()
	again, err := b.taskServerOf(folder, "interval", "")
	if err != nil {
		return err
	}
	s, killed = again, false
	b.add(limited(Row{Name: "start after SIGKILL" + of, Unit: "s", Millrace: time.Since(began).Seconds()}, 5))
	use, err := s.usage()
	if err != nil {
		return err
	}
	b.add(limited(Row{Name: "memory" + of, Unit: "MB", Millrace: use.pss / 1e6}, 200))
	var page struct{ Tasks []taskState }
	if err := newTaskClient(s.addr).do("GET", "?limit=1000&state=queued", "", &page); err != nil {
		return err
	}
	if len(page.Tasks) != min(waitingTasks, 1000) {
		return fmt.Errorf("after the start, a page has %d tasks", len(page.Tasks))
	}
	return nil
}

// limited sets the limit of a row that is no ratio.
func limited(r Row, most float64) Row {
	r.Limit, r.Met = fmt.Sprintf("<= %g", most), r.Millrace <= most
	return r
}
