//go:build !nometrics

package main

import (
	"fmt"
	"html"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The layout of a picture, in pixels, on Grafana's grid.
const (
	gridColumn, gridRow = 42, 26
	pictureHead         = 58
	legendLine          = 13
	maxLegend           = 4
)

var colours = []string{"#2f7ed8", "#e0752d", "#3f9e4d", "#b5367a", "#7a5cc0", "#8a6d3b", "#14a0a0", "#c0392b"}

// draw writes a picture of a dashboard: the panels, drawn from the answers of Prometheus to the panels' queries. The
// picture is not from Grafana, and says so.
func draw(t *testing.T, p *peer, d *dashboard, from, to time.Time) {
	t.Helper()
	var b strings.Builder
	y := 0
	for _, r := range d.rows {
		fmt.Fprintf(&b, `<text x="8" y="%d" class="row">%s</text>`+"\n", pictureHead+y*gridRow+18,
			html.EscapeString(r.title))
		y++
		x, high := 0, 0
		for _, panel := range r.panels {
			w, h := panel.size()
			if x+w > gridWidth {
				x, y, high = 0, y+high, 0
			}
			box := rect{x*gridColumn + 4, pictureHead + y*gridRow + 4, w*gridColumn - 8, h*gridRow - 8}
			drawPanel(t, &b, p, &panel, box, from, to)
			x, high = x+w, max(high, h)
		}
		y += high
	}
	width, height := gridWidth*gridColumn, pictureHead+y*gridRow+8
	svg := fmt.Sprintf(
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">
<style>.row{font-size:14px;font-weight:bold}.title{font-weight:bold}.small{font-size:10px;fill:#555}.value{font-size:19px}.box{fill:#fff;stroke:#ccc}</style>
<rect width="%d" height="%d" fill="#f4f5f6"/>
<text x="8" y="24" font-size="18" font-weight="bold">%s</text>
<text x="8" y="44" class="small">Drawn from the answers of Prometheus to the queries of this dashboard, %.0f seconds of a test's load. It was not drawn by Grafana.</text>
%s</svg>
`, width, height, width, height, html.EscapeString(d.title), to.Sub(from).Seconds(), b.String())
	if len(svg) > 150_000 {
		t.Errorf("the picture of %s has %d bytes", d.uid, len(svg))
	}
	if err := os.WriteFile(filepath.Join(*pictures, d.uid+".svg"), []byte(svg), 0o644); err != nil {
		t.Fatal(err)
	}
}

type rect struct{ x, y, w, h int }

func drawPanel(t *testing.T, b *strings.Builder, p *peer, panel *panel, box rect, from, to time.Time) {
	t.Helper()
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" rx="3" class="box"/><text x="%d" y="%d" `+
		`class="title">%s</text>`+"\n",
		box.x, box.y, box.w, box.h, box.x+8, box.y+16, html.EscapeString(panel.title))
	if panel.kind == "text" {
		text := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(panel.text, "$1")
		for i, line := range strings.Split(text, "\n") {
			fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`, box.x+8, box.y+36+i*16, html.EscapeString(line))
		}
		return
	}
	lines := panel.lines(t, p, from, to)
	if panel.kind == "stat" {
		value := "-"
		if len(lines) > 0 && lines[0].name != "" {
			value = lines[0].name
		} else if len(lines) > 0 {
			value = shown(lines[0].points[len(lines[0].points)-1][1], panel.unit)
		}
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" class="value">%s</text>`+"\n", box.x+box.w/2,
			box.y+box.h/2+14, html.EscapeString(value))
		return
	}
	top := 0.0
	for _, l := range lines {
		for _, v := range l.points {
			top = max(top, v[1])
		}
	}
	if top == 0 {
		top = 1
	}
	legend := legendLine * min(len(lines), maxLegend)
	plot := rect{box.x + 8, box.y + 36, box.w - 16, box.h - 44 - legend}
	fmt.Fprintf(b, `<text x="%d" y="%d" class="small">%s</text><line x1="%d" y1="%d" x2="%d" y2="%d" `+
		`stroke="#ddd"/><line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#999"/>`+"\n",
		plot.x, plot.y-5, shown(top, panel.unit), plot.x, plot.y, plot.x+plot.w, plot.y, plot.x, plot.y+plot.h,
		plot.x+plot.w, plot.y+plot.h)
	for i, l := range lines {
		var points []string
		for _, v := range l.points {
			points = append(points, fmt.Sprintf("%.0f,%.1f", float64(plot.x)+v[0]*float64(plot.w),
				float64(plot.y+plot.h)-v[1]/top*float64(plot.h)))
		}
		colour := colours[i%len(colours)]
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>`+"\n", colour,
			strings.Join(points, " "))
		if i >= maxLegend {
			continue
		}
		name := l.name
		if i == maxLegend-1 && len(lines) > maxLegend {
			name = fmt.Sprintf("%s, and %d more", name, len(lines)-maxLegend)
		}
		at := plot.y + plot.h + 4 + legendLine*(i+1)
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="10" height="3" fill="%s"/><text x="%d" y="%d" `+
			`class="small">%s</text>`+"\n", plot.x, at-5, colour, plot.x+14, at, html.EscapeString(name))
	}
}

// line is a series: its name, and points with the time as a share of the range.
type line struct {
	name   string
	points [][2]float64
}

// lines returns the series of a panel, the largest first.
func (panel *panel) lines(t *testing.T, p *peer, from, to time.Time) (out []line) {
	t.Helper()
	const points = 100
	length := to.Sub(from).Seconds()
	for _, q := range panel.queries {
		var data struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
		err := p.get("query_range", url.Values{
			"query": {resolve(q.expr)}, "start": {strconv.FormatInt(from.Unix(), 10)},
			"end": {strconv.FormatInt(to.Unix(), 10)}, "step": {fmt.Sprintf("%.2f", max(1, length/points))},
		}, &data)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range data.Result {
			l := line{name: regexp.MustCompile(`\{\{(\w+)\}\}`).ReplaceAllStringFunc(q.legend,
				func(label string) string {
					return r.Metric[strings.Trim(label, "{}")]
				})}
			for _, v := range r.Values {
				at, _ := v[0].(float64)
				n, err := strconv.ParseFloat(fmt.Sprint(v[1]), 64)
				if err == nil && !math.IsNaN(n) && !math.IsInf(n, 0) {
					l.points = append(l.points, [2]float64{(at - float64(from.Unix())) / length, n})
				}
			}
			if len(l.points) > 0 {
				out = append(out, l)
			}
		}
	}
	largest := func(l line) (top float64) {
		for _, v := range l.points {
			top = max(top, v[1])
		}
		return top
	}
	slices.SortStableFunc(out, func(a, b line) int { return int(math.Copysign(1, largest(b)-largest(a))) })
	return out
}

// shown writes a value in its unit.
func shown(v float64, unit string) string {
	switch {
	case unit == percent:
		return fmt.Sprintf("%.2f %%", v*100)
	case unit == bytesIEC:
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	case unit == seconds && v < 1:
		return fmt.Sprintf("%.1f ms", v*1000)
	case unit == seconds:
		return fmt.Sprintf("%.1f s", v)
	case unit == requests:
		return fmt.Sprintf("%.1f /s", v)
	}
	if unit, ok := strings.CutPrefix(unit, "suffix:"); ok {
		return fmt.Sprintf("%.3g%s", v, unit)
	}
	return fmt.Sprintf("%.4g", v)
}
