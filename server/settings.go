package server

import (
	"fmt"
	"strconv"
	"time"

	"millrace/batching"
	"millrace/internal/setting"
	"millrace/workers"
)

// ModelSettings lists the settings of a model: keys of an entry under models in
// the file, and of --model. Default is empty where it is the worker's or the
// model's own.
func ModelSettings() []Setting {
	defaults := modelDefaults()
	out := make([]Setting, len(modelKeys))
	for i, k := range modelKeys {
		out[i] = Setting{Path: k.path, Doc: k.doc, Default: defaults[k.path]}
		var m ModelConfig
		_, out[i].Switch = k.at(&m).(*bool)
	}
	return out
}

// modelDefaults reads the defaults off the workers', so that they stand in one
// place.
func modelDefaults() map[string]string {
	c := workers.Config{}.WithDefaults()
	soft, _ := setting.Part[batching.SoftSettings](nil)
	deadline, _ := setting.Part[batching.DeadlineSettings](nil)
	span := func(d time.Duration) string { return Duration(d).String() }
	return map[string]string{
		"version":            c.Version,
		"instances":          strconv.Itoa(c.Instances),
		"max_flows":          strconv.Itoa(c.MaxFlows),
		"batching.kind":      c.Batching.Kind,
		"batching.max_delay": span(soft.MaxDelay),
		"batching.slack":     span(deadline.Slack),
		"batching.buffers":   "instances + 1",
		"input.image.fit":    "stretch",
		"input.image.scale":  "1",
		"input.image.mean":   "0",
		"input.image.std":    "1",
		"stream.priority":    "normal",
		"limits.start":       span(c.Limits.Start),
		"limits.run":         span(c.Limits.Run),
		"limits.quarantined": strconv.Itoa(c.Limits.Quarantined),
		"limits.restarts":    fmt.Sprintf("%d in a row", c.Limits.Restarts),
		"limits.idle_state":  span(c.Limits.IdleState),
	}
}
