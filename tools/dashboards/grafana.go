//go:build !nometrics

package main

import (
	"encoding/json"
	"fmt"
)

// dashboard is a page of Grafana.
type dashboard struct {
	uid, title, about string
	variables         []variable
	rows              []row
}

// variable is a label chosen by a user of the page; by default, all values of the label.
type variable struct{ name, values string }

type row struct {
	title  string
	panels []panel
}

// panel is a graph over time, a single value (stat) or a text.
type panel struct {
	kind      string
	title     string
	unit      string
	help      string
	text      string
	queries   []query
	exemplars bool
}

// query is an expression of PromQL, and the name of its series in the legend.
type query struct{ expr, legend string }

func graph(title, unit, help string, queries ...query) panel {
	return panel{kind: "timeseries", title: title, unit: unit, help: help, queries: queries}
}

func stat(title, unit, expr, help string) panel {
	return panel{kind: "stat", title: title, unit: unit, help: help, queries: []query{{expr, ""}}}
}

func text(title, markdown string) panel { return panel{kind: "text", title: title, text: markdown} }

// withExemplars shows the frames behind a histogram, with links to their traces.
func withExemplars(p panel) panel {
	p.exemplars = true
	return p
}

// labelled shows the labels of a value instead of the value.
func (p panel) labelled(legend string) panel {
	p.queries[0].legend = legend
	return p
}

// The identifiers of the data sources, for references from dashboards and exemplars.
const (
	prometheusUID = "millrace-prometheus"
	jaegerUID     = "millrace-jaeger"
)

type object = map[string]any

var source = object{"type": "prometheus", "uid": "${datasource}"}

// The width of Grafana's grid, and the sizes of panels in the grid.
const (
	gridWidth             = 24
	graphWidth            = 8
	graphHeight           = 7
	statWidth, statHeight = 4, 4
	textHeight            = 4
)

// grafana returns the dashboard in Grafana's JSON.
func (d *dashboard) grafana() string {
	var panels []object
	id, y := 0, 0
	for _, r := range d.rows {
		id++
		panels = append(panels, object{"id": id, "type": "row", "title": r.title,
			"gridPos": object{"x": 0, "y": y, "w": gridWidth, "h": 1}, "panels": []any{}})
		y++
		x, high := 0, 0
		for _, p := range r.panels {
			w, h := p.size()
			if x+w > gridWidth {
				x, y, high = 0, y+high, 0
			}
			id++
			panels = append(panels, p.grafana(id, object{"x": x, "y": y, "w": w, "h": h}))
			x, high = x+w, max(high, h)
		}
		y += high
	}
	list := []object{
		{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus",
			"current": object{"text": "Prometheus", "value": prometheusUID}},
		{"name": "jaeger", "label": "Jaeger", "type": "textbox", "query": "http://localhost:16686",
			"current": object{"text": "http://localhost:16686", "value": "http://localhost:16686"}},
	}
	for _, v := range d.variables {
		list = append(list, object{
			"name": v.name, "label": v.name, "type": "query", "datasource": source,
			"query": object{"query": v.values, "refId": v.name}, "definition": v.values,
			"multi": true, "includeAll": true, "allValue": ".+", "refresh": 2, "sort": 1,
			"current": object{"text": "All", "value": "$__all"},
		})
	}
	out, err := json.MarshalIndent(object{
		"uid": d.uid, "title": d.title, "description": d.about, "tags": []string{"millrace"}, "schemaVersion": 39,
		"editable": true, "timezone": "browser",
		"time": object{"from": "now-30m", "to": "now"}, "refresh": "10s", "templating": object{"list": list},
		"panels": panels,
		"links": []object{{"type": "dashboards", "tags": []string{"millrace"}, "title": "Millrace",
			"asDropdown": false, "includeVars": true, "keepTime": true}},
	}, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("generate: %s: %v", d.uid, err))
	}
	return string(out) + "\n"
}

func (p *panel) size() (w, h int) {
	switch p.kind {
	case "stat":
		return statWidth, statHeight
	case "text":
		return gridWidth, textHeight
	}
	return graphWidth, graphHeight
}

func (p *panel) grafana(id int, at object) object {
	o := object{"id": id, "type": p.kind, "title": p.title, "description": p.help, "gridPos": at}
	if p.kind == "text" {
		o["options"] = object{"mode": "markdown", "content": p.text}
		return o
	}
	var targets []object
	for i, q := range p.queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "expr": q.expr, "legendFormat": q.legend,
			"range": p.kind != "stat", "instant": p.kind == "stat", "exemplar": p.exemplars,
		})
	}
	defaults := object{"unit": p.unit, "min": 0}
	if p.unit == "" {
		defaults["unit"] = "short"
	}
	o["datasource"], o["targets"] = source, targets
	o["fieldConfig"] = object{"defaults": defaults, "overrides": []any{}}
	if p.kind == "stat" {
		mode := "value"
		if p.queries[0].legend != "" {
			mode = "name"
		}
		o["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "textMode": mode,
			"graphMode": "none"}
		return o
	}
	defaults["custom"] = object{"fillOpacity": 8, "showPoints": "never"}
	o["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom"},
		"tooltip": object{"mode": "multi", "sort": "desc"}}
	return o
}

// datasources returns the provisioning of Grafana's data sources. The addresses come
// from variables of the environment.
func datasources() string {
	return fmt.Sprintf(`# Written by go generate -C tools ./dashboards.
apiVersion: 1
datasources:
  - name: Prometheus
    uid: %s
    type: prometheus
    access: proxy
    url: ${PROMETHEUS_URL}
    isDefault: true
    jsonData:
      # Points of histograms lead to the traces of their frames.
      exemplarTraceIdDestinations:
        - name: trace_id
          datasourceUid: %s
  - name: Jaeger
    uid: %s
    type: jaeger
    access: proxy
    url: ${JAEGER_URL}
`, prometheusUID, jaegerUID, jaegerUID)
}

// folder returns the provisioning of Grafana's dashboards.
func folder() string {
	return `# Written by go generate -C tools ./dashboards.
apiVersion: 1
providers:
  - name: Millrace
    folder: Millrace
    type: file
    options:
      path: /etc/grafana/dashboards
`
}
