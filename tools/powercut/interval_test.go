package powercut

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"millrace/tasks"
)

// begunFile is the file of begun attempts in the data folder.
const begunFile = "begun"

// TestPowerFailureInterval: as TestPowerFailure, with tasks.sync=interval. Changes since the last sync may be lost. The
// server starts, ended tasks from before the run are unchanged, a finished task has the result of the attempt in the
// record, bytes of inputs and results are right or an error, an attempt in the file begun counts unless its line is
// damaged, and the remaining tasks run to an end that the next start finds.
func TestPowerFailureInterval(t *testing.T) {
	failPower(t, "interval", 60, (*point).checkInterval, func(p *point, folder string) history {
		found := history{}
		if err := errors.Join(os.RemoveAll(folder), p.tree.Write(folder)); err != nil {
			t.Fatal(err)
		}
		d, err := openInterval(t.Context(), folder)
		if err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		defer d.Close()
		for id, task := range allTasks(d) {
			if task.State.Ended() {
				found[id] = known{state: string(task.State), attempt: task.Attempt, before: true}
			}
		}
		return found
	})
}

func openInterval(ctx context.Context, folder string) (*tasks.Data, error) {
	return tasks.OpenData(ctx, filepath.Join(folder, dataFolder), false, tasks.Options{Lease: 200 * time.Millisecond})
}

// allTasks returns the tasks by id.
func allTasks(d *tasks.Data) map[string]tasks.Task {
	all := map[string]tasks.Task{}
	for q := (tasks.Query{Limit: 1000}); ; {
		list, next := d.List(q)
		for _, t := range list {
			all[t.ID] = t
		}
		if q.After = next; next == "" {
			return all
		}
	}
}

func (p *point) checkInterval(t *testing.T, folder string, drive bool) error {
	begun := begunAttempts(p.tree)
	without := maps.Clone(p.tree)
	delete(without, filepath.Join(dataFolder, begunFile))
	records, err := openTree(t, without, folder)
	if err != nil {
		return fmt.Errorf("without the file begun: %w", err)
	}
	recorded := allTasks(records)
	records.Close()
	d, err := openTree(t, p.tree, folder)
	if err != nil {
		return err
	}
	found := allTasks(d)
	for id, before := range recorded {
		now, there := found[id]
		n := max(before.Attempt, begun[id])
		switch {
		case !there:
			err = errors.New("is there only without the file begun")
		case before.State == tasks.Queued && begun[id] > before.Attempt:
			if now.State != tasks.Running || now.Attempt != n {
				err = fmt.Errorf("is %s after attempt %d, and has begun attempt %d", now.State, now.Attempt, n)
			}
		case now.State != before.State || now.Attempt != before.Attempt:
			err = fmt.Errorf("is %s after attempt %d, and the record says %s after %d", now.State, now.Attempt,
				before.State, before.Attempt)
		}
		if err != nil {
			d.Close()
			return fmt.Errorf("the task %s %w", id, err)
		}
	}
	if err := p.checkBefore(found); err != nil {
		d.Close()
		return err
	}
	err = p.checkContents(t.Context(), d, found)
	if err == nil && drive {
		err = p.driveInterval(t.Context(), d, found)
	}
	ended := allTasks(d)
	d.Close()
	if err != nil || !drive {
		return err
	}
	if d, err = openInterval(t.Context(), folder); err != nil {
		return fmt.Errorf("after all tasks: %w", err)
	}
	defer d.Close()
	for id, now := range allTasks(d) {
		if was := ended[id]; was.State != now.State || was.Attempt != now.Attempt {
			return fmt.Errorf("the task %s was %s after attempt %d, and is %s after %d", id, was.State, was.Attempt,
				now.State, now.Attempt)
		}
		delete(ended, id)
	}
	if len(ended) > 0 {
		return fmt.Errorf("%d tasks are lost by a restart", len(ended))
	}
	return nil
}

// openTree opens the data folder of a tree.
func openTree(t *testing.T, tree Tree, folder string) (*tasks.Data, error) {
	if err := errors.Join(os.RemoveAll(folder), tree.Write(folder)); err != nil {
		return nil, err
	}
	return openInterval(t.Context(), folder)
}

// begunAttempts returns the newest attempt of each task in the file begun, whatever zeros a power failure has left
// before a line.
func begunAttempts(tree Tree) map[string]int {
	all := map[string]int{}
	for line := range bytes.SplitSeq(tree[filepath.Join(dataFolder, begunFile)], []byte("\n")) {
		var b struct {
			ID      string
			Attempt int
		}
		if json.Unmarshal(bytes.TrimLeft(line, "\x00"), &b) == nil {
			all[b.ID] = max(all[b.ID], b.Attempt)
		}
	}
	return all
}

// checkContents reads the inputs and results.
func (p *point) checkContents(ctx context.Context, d *tasks.Data, found map[string]tasks.Task) error {
	for id, t := range found {
		if k := p.known[id]; k.input != "" && k.input != t.Input.SHA256 {
			return fmt.Errorf("the task %s has another input", id)
		} else if k.result != "" && t.State == tasks.Finished && (t.Attempt != k.attempt ||
			t.Result.SHA256 != k.result) {
			return fmt.Errorf("the task %s has another result than the acknowledged result", id)
		}
		if t.State != tasks.Finished {
			continue
		}
		if want := sum(resultOf(id, t.Attempt)); t.Result.SHA256 != want {
			return fmt.Errorf("the task %s has the SHA-256 %s for attempt %d, want %s", id, t.Result.SHA256, t.Attempt,
				want)
		}
		out, err := d.Result(ctx, t)
		if err != nil {
			continue
		}
		b, err := io.ReadAll(out)
		_ = out.Close()
		if err == nil && sum(b) != t.Result.SHA256 {
			return fmt.Errorf("the result of %s has other bytes, without an error", id)
		}
	}
	return nil
}

// checkBefore compares the tasks that had ended before the process began.
func (p *point) checkBefore(found map[string]tasks.Task) error {
	for id, k := range p.known {
		now, there := found[id]
		if k.before && (!there || string(now.State) != k.state ||
			now.Attempt != k.attempt) {
			return fmt.Errorf("the task %s, %+v before the process, is there: %t, %+v", id, k, there, now)
		}
	}
	return nil
}

// driveInterval runs all tasks to their end. An attempt is never repeated.
func (p *point) driveInterval(ctx context.Context, d *tasks.Data, found map[string]tasks.Task) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	go d.Run(ctx)
	attempts := map[string]int{}
	for id, t := range found {
		attempts[id] = t.Attempt
	}
	for {
		left, _ := d.List(tasks.Query{States: []tasks.State{tasks.Queued, tasks.Running}, Limit: 1000})
		if len(left) == 0 {
			return nil
		}
		c, err := d.Claim(ctx, "tester", func(string) bool { return true })
		if err != nil {
			return fmt.Errorf("%d tasks do not end, such as %+v: %w", len(left), left[0], err)
		}
		t := c.Task()
		if found[t.ID].State.Ended() || t.Attempt <= attempts[t.ID] {
			return fmt.Errorf("attempt %d of the task %s begins after attempt %d, %s", t.Attempt, t.ID, attempts[t.ID],
				found[t.ID].State)
		}
		attempts[t.ID] = t.Attempt
		w, err := c.Create()
		if err == nil {
			_, err = w.Write(resultOf(t.ID, t.Attempt))
		}
		if err != nil {
			return err
		}
		info, err := w.Commit()
		if err == nil {
			err = c.Finish(tasks.File{Info: info})
		}
		if err != nil && !errors.Is(err, tasks.ErrClaimLost) { // a busy machine may renew too late
			return err
		}
	}
}
