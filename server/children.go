package server

import (
	"context"
	"log/slog"

	"millrace/internal/child"
	"millrace/internal/confine"
	"millrace/internal/video"
	"millrace/workers"
	"millrace/workers/container"
)

// children starts and confines what runs outside of the server's process: ffmpeg, programs and containers.
type children struct {
	log        *slog.Logger
	hwaccel    string            // the setting sources.hwaccel
	hardware   *video.Hardware   // decodes videos; nil = software
	sandboxed  bool              // ffmpeg is confined
	programs   *confine.Programs // confines workers in child processes and exec sources; nil = no confinement
	containers *container.Engine // runs models of the kind container
}

// newChildren returns the children of a configuration, and logs missing features of this machine.
func newChildren(cfg *Config, log *slog.Logger) (*children, error) {
	c := &children{log: log, hwaccel: cfg.Sources.HWAccel}
	lacks := child.SandboxError()
	var err error
	if c.sandboxed, err = sandbox(cfg.Sandbox, lacks, log); err != nil {
		return nil, err
	}
	if c.programs, err = confinement(cfg, lacks, log); err != nil {
		return nil, err
	}
	c.hardware = video.NewHardware(cfg.Sources.HWAccel, func(err error) {
		log.Warn("hardware failed: for a minute, further videos are decoded or encoded in software", "setting",
			"sources.hwaccel", "error", err)
	})
	c.containers, err = container.New(container.Options{Host: cfg.Containers.Host, Images: cfg.Containers.Images,
		User: cfg.Containers.User, Data: cfg.Data, Log: log})
	return c, err
}

// find tries the methods of decoding videos, and logs the method in use. An unusable configured method is a warning:
// a slow server is more useful than a failed start.
func (c *children) find(ctx context.Context) {
	if c.hardware == nil {
		return
	}
	found := c.hardware.Find(ctx)
	level := slog.LevelInfo
	if found.Use == "" && c.hwaccel != video.HardwareAuto {
		level = slog.LevelWarn
	}
	c.log.Log(context.Background(), level, found.String(), "sources.hwaccel", c.hwaccel)
}

// decoding returns what decodes videos, nil = software, and whether ffmpeg is confined.
func (c *children) decoding() (hardware *video.Hardware, sandboxed bool) {
	return c.hardware, c.sandboxed
}

// provide lets the manager run programs, confined, and containers.
func (c *children) provide(o *workers.ManagerOptions) {
	o.Programs, o.Containers = c.programs, c.containers
}

// openContainers connects to the engine of containers for the tasks of container models.
func (c *children) openContainers(ctx context.Context) error { return c.containers.Open(ctx) }

// checkImage returns an error for an image that models may not run.
func (c *children) checkImage(image string) error { return c.containers.CheckImage(image) }

// attrs returns the attributes of the confinement for the log.
func (c *children) attrs() []any {
	return []any{"sandbox", sandboxText(c.sandboxed), "confine", sandboxText(c.programs != nil)}
}

// close ends the connection to the engine of containers.
func (c *children) close() { c.containers.Close() }
