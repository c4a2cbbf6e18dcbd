package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"millrace/client"
)

// waitTask waits for the end of a task, and writes each change of the state to w.
func waitTask(ctx context.Context, cl *client.Client, id string, w io.Writer) (client.Task, error) {
	lines, shown := newProgress(w), ""
	defer lines.end()
	for {
		t, err := cl.TaskWithin(ctx, id, time.Second)
		if err != nil {
			return t, err
		}
		state := stateOfTask(&t)
		if t.State == "running" && t.Progress.Total > 0 && lines.overwrite {
			state += "  " + bar(t.Progress.Done, t.Progress.Total)
		}
		if state != shown && !t.Over() {
			lines.line(state)
			shown = state
		}
		if t.Over() {
			return t, nil
		}
	}
}

// bar returns the bar of a progress.
func bar(done, total int64) string {
	const width = 20
	n := int(float64(min(done, total)) / float64(total) * width)
	return "[" + strings.Repeat("#", n) + strings.Repeat("-", width-n) + "]"
}

// stateOfTask returns the state for people.
func stateOfTask(t *client.Task) string {
	switch {
	case t.State == "running":
		text := fmt.Sprintf("running on %s, attempt %d of %d", t.Consumer, t.Attempt, t.LastAttempt)
		if p := progressOfTask(t.Progress); p != "" {
			text += ": " + p
		}
		return text
	case t.Error != nil && !t.Over():
		return "waiting after a failed attempt: " + oneLine(t.Error.Message)
	case t.State == "queued":
		return "waiting"
	}
	return t.State
}

// progressOfTask returns a progress for people; "" = there is none.
func progressOfTask(p client.TaskProgress) string {
	if p == (client.TaskProgress{}) {
		return ""
	}
	text := fmt.Sprint(p.Done)
	if p.Total > 0 {
		text += fmt.Sprintf(" of %d", p.Total)
	}
	if p.Unit != "" {
		text += " " + p.Unit
	}
	if p.Total > 0 {
		text += fmt.Sprintf(" (%d %%)", int(100*float64(p.Done)/float64(p.Total)))
	}
	return text
}
