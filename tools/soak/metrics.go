package main

import (
	"context"
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	names "github.com/prometheus/common/model"
)

// metrics are the families of one scrape, by name.
type metrics map[string]*dto.MetricFamily

// scrape reads the metrics of a server.
func scrape(ctx context.Context, c *http.Client, url string) (metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", url, r.Status)
	}
	p := expfmt.NewTextParser(names.UTF8Validation)
	return p.TextToMetricFamilies(r.Body)
}

// each calls do for each sample of a family with the given labels: pairs of a name and a value.
func (m metrics) each(family string, do func(labels map[string]string, value float64), labels ...string) {
	for _, s := range m[family].GetMetric() {
		have := map[string]string{}
		for _, l := range s.GetLabel() {
			have[l.GetName()] = l.GetValue()
		}
		matches := true
		for i := 0; i < len(labels); i += 2 {
			matches = matches && have[labels[i]] == labels[i+1]
		}
		if matches {
			do(have, s.GetCounter().GetValue()+s.GetGauge().GetValue()+s.GetUntyped().GetValue())
		}
	}
}

// sum adds the samples of a family with the given labels.
func (m metrics) sum(family string, labels ...string) (n float64) {
	m.each(family, func(_ map[string]string, v float64) { n += v }, labels...)
	return n
}

// by adds the samples of a family with the given labels, for each value of another label.
func (m metrics) by(label, family string, labels ...string) map[string]uint64 {
	n := map[string]uint64{}
	m.each(family, func(have map[string]string, v float64) {
		if v > 0 {
			n[have[label]] += uint64(v)
		}
	}, labels...)
	return n
}

// served returns the server's counts for all versions of a model.
func (m metrics) served(model string) served {
	return served{
		Accepted: uint64(m.sum("millrace_frames_accepted_total", "model", model)),
		InFlight: uint64(m.sum("millrace_frames_in_flight", "model", model)),
		outcome: outcome{
			Result: uint64(m.sum("millrace_frames_total", "model", model, "outcome", "result")),
			Drops:  m.by("reason", "millrace_dropped_frames_total", "model", model),
			Errors: m.by("code", "millrace_frame_errors_total", "model", model),
		},
	}
}
