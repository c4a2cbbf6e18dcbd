package tasks

import (
	"strconv"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/internal/httpd"
	"millrace/stream"
	"millrace/tasks"
)

// logs sends the logs of a task, with follow=true until the task has ended.
func (a *Adapter) logs(c *fiber.Ctx) error {
	t, err := a.find(c)
	follow := false
	if err == nil {
		err = parseOptions(c, func(name, text string) (known bool, err error) {
			if follow, err = strconv.ParseBool(text); err != nil {
				err = stream.Errorf(stream.InvalidArgument, name, "%.40q is neither true nor false", text)
			}
			return name == "follow", err
		})
	}
	if err != nil {
		return err
	}
	c.Response().Header.SetContentType("text/plain; charset=utf-8")
	by := ingest.ClientOf(httpd.ClientOf(c))
	if follow {
		return a.followLogs(c, by, t.ID)
	}
	return Send(c, by, a.opts.Data.Logs(a.ctx, t.ID), -1)
}

// followLogs sends the logs of a task as they grow.
func (a *Adapter) followLogs(c *fiber.Ctx, by *ingest.Client, id string) error {
	if err := by.Core().Hold(stream.QuotaWatchers); err != nil {
		return err
	}
	httpd.ForbidScripts(c)
	release := func() { by.Core().Release(stream.QuotaWatchers) }
	a.http.GoLive(c, a.ctx, a.run, "logs", func(l *httpd.Live) {
		defer release()
		buf, at := make([]byte, 32<<10), tasks.LogPosition{}
		for err := l.Begin(); err == nil; {
			n := 0
			if n, at, err = a.opts.Data.FollowLog(l.Context(), id, at, buf); n > 0 {
				_, err = l.Write(buf[:n])
			}
		}
	}, release)
	return nil
}
