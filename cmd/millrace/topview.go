package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"millrace/client"
)

// topSample is the state of a server at one moment.
type topSample struct {
	status  client.Status
	streams []client.ServerStream
}

// topView is the change between two samples. Rates are per second.
type topView struct {
	Addr          string    `json:"addr"`
	Version       string    `json:"version"`
	State         string    `json:"state"`
	Time          time.Time `json:"time"`
	UptimeSeconds float64   `json:"uptime_seconds"`
	Seconds       float64   `json:"seconds"` // of the rates; 0 = there are none yet

	CPU         float64                            `json:"cpu"` // processors used, on average
	Process     client.ProcessStatus               `json:"process"`
	Memory      client.MemoryStatus                `json:"memory"`
	Connections map[string]client.ConnectionStatus `json:"connections"`
	Sessions    map[string]int                     `json:"sessions"`

	Models  []topModel  `json:"models"`
	Streams []topStream `json:"streams"`

	Problem string `json:"-"` // why there is no newer view
}

// topModel is a model in a view.
type topModel struct {
	Name     string  `json:"name"`
	Version  string  `json:"version"`
	State    string  `json:"state"`
	Reason   string  `json:"reason,omitempty"`
	Workers  int     `json:"workers"`
	Busy     int     `json:"busy"`
	Streams  int     `json:"streams"`
	Waiting  int     `json:"waiting"`
	InFlight uint64  `json:"in_flight"`
	In       float64 `json:"in_per_second"`
	Results  float64 `json:"results_per_second"`
	Drops    float64 `json:"drops_per_second"`
	Errors   float64 `json:"errors_per_second"`
	P50      float64 `json:"p50_ms"` // from the receipt of a frame to its result; 0 = there was none
	P99      float64 `json:"p99_ms"`
	Rows     float64 `json:"mean_batch_rows"`
}

// topStream is a server stream in a view.
type topStream struct {
	Name       string  `json:"name"`
	State      string  `json:"state"`
	Paused     bool    `json:"paused"`
	Model      string  `json:"model"`
	FPS        float64 `json:"frames_per_second"` // read from the source
	Results    float64 `json:"results_per_second"`
	Drops      float64 `json:"drops_per_second"`
	Errors     float64 `json:"errors_per_second"`
	Restarts   uint64  `json:"restarts"`
	AgeSeconds float64 `json:"last_result_age_seconds"` // -1 = there was none
	Error      string  `json:"error,omitempty"`
}

// newTopView compares two samples; an empty sample means no sample.
func newTopView(addr string, before, now topSample) topView {
	b, n := &before.status, &now.status
	v := topView{
		Addr: addr, Version: n.Version, State: n.State, Time: n.Time, UptimeSeconds: n.UptimeSeconds,
		Process: n.Process, Memory: n.Memory, Connections: n.Connections, Sessions: n.Sessions, Models: []topModel{},
		Streams: []topStream{},
	}
	same := b.Started.Equal(n.Started) // otherwise the server was restarted, and the counters too
	if same {
		v.Seconds = n.Time.Sub(b.Time).Seconds()
		v.CPU = rate(b.Process.CPUSeconds, n.Process.CPUSeconds, v.Seconds)
	}
	models := map[string]*client.ModelStatus{}
	streams := map[string]*client.ServerStream{}
	if same {
		for i := range b.Models {
			models[b.Models[i].Name+"\x00"+b.Models[i].Version] = &b.Models[i]
		}
		for i := range before.streams {
			streams[before.streams[i].Name] = &before.streams[i]
		}
	}
	for i := range n.Models {
		m := &n.Models[i]
		v.Models = append(v.Models, newTopModel(cmp.Or(models[m.Name+"\x00"+m.Version], &client.ModelStatus{}), m,
			v.Seconds))
	}
	for i := range now.streams {
		s := &now.streams[i]
		v.Streams = append(v.Streams, newTopStream(cmp.Or(streams[s.Name], &client.ServerStream{}), s, v))
	}
	return v
}

func newTopModel(before, now *client.ModelStatus, seconds float64) topModel {
	m := topModel{
		Name: now.Name, Version: now.Version, State: now.State, Reason: now.Reason, Workers: now.Workers,
		Busy:    now.Busy,
		Streams: now.Streams, Waiting: now.Waiting, InFlight: now.InFlight,
		In:      rate(before.Accepted, now.Accepted, seconds),
		Results: rate(before.Results, now.Results, seconds),
		Drops:   rate(sumOf(before.Drops), sumOf(now.Drops), seconds),
		Errors:  rate(sumOf(before.Errors), sumOf(now.Errors), seconds),
	}
	ages := now.StagesUS.Total.Since(before.StagesUS.Total)
	m.P50, m.P99 = ages.Quantile(0.5)/1000, ages.Quantile(0.99)/1000
	if rows := now.BatchRows.Since(before.BatchRows); rows.Count() > 0 {
		m.Rows = float64(rows.Sum) / float64(rows.Count())
	}
	return m
}

func newTopStream(before, now *client.ServerStream, v topView) topStream {
	s := topStream{
		Name: now.Name, State: now.State, Paused: now.Paused, Model: modelsText(now), Restarts: now.Restarts,
		AgeSeconds: -1,
		FPS:        rate(before.Frames, now.Frames, v.Seconds),
		Results:    rate(before.Results, now.Results, v.Seconds),
		Drops:      rate(sumOf(before.Drops), sumOf(now.Drops), v.Seconds),
		Errors:     rate(before.Errors, now.Errors, v.Seconds),
	}
	if now.Last != nil {
		s.AgeSeconds = max(v.Time.Sub(*now.Last).Seconds(), 0)
	}
	if now.Error != nil && now.State != "running" {
		s.Error = now.Error.Message
	} else if now.State == "running" {
		s.Error = waitingModels(now)
	}
	return s
}

// rate returns the rise of a counter per second. A lower counter has restarted at 0.
func rate[T uint64 | float64](before, now T, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	if now < before {
		before = 0
	}
	return float64(now-before) / seconds
}

func sumOf[K ~string](counts map[K]uint64) (sum uint64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// topStyle says whether text has colours.
type topStyle bool

// The colours of texts.
const (
	plain  = ""
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	faint  = "\x1b[2m"
)

func (on topStyle) paint(color, text string) string {
	if !on || color == plain {
		return text
	}
	return color + text + "\x1b[0m"
}

// lines returns the view as lines of at most width characters, and at most height lines; height 0 means no limit.
func (v *topView) lines(width, height int, style topStyle) []string {
	out := v.head(width, style)
	models, streams := v.modelLines(width, style), v.streamLines(width, style)
	if height > 0 {
		room := max(height-len(out), 0)
		share := room
		if len(streams) > 0 { // each table gets half of the room, and the unused room of the other table
			share = max(room/2, room-len(streams)-1)
		}
		models = cutLines(models, share, width, style)
		left := room - len(models)
		if len(streams) > 0 {
			streams = cutLines(streams, left-1, width, style)
		}
	}
	out = append(out, models...)
	if len(streams) > 0 {
		out = append(append(out, ""), streams...)
	}
	if height > 0 && len(out) > height {
		out = out[:height]
	}
	return out
}

// cutLines returns at most n lines; the last line has the number of lines left out.
func cutLines(lines []string, n, width int, style topStyle) []string {
	if len(lines) <= n {
		return lines
	}
	if n < 1 {
		return nil
	}
	return append(slices.Clip(lines[:n-1]), style.paint(faint, cut(fmt.Sprintf("... %d more", len(lines)-n+1), width)))
}

// head returns the lines about the server.
func (v *topView) head(width int, style topStyle) []string {
	color := plain
	if v.State != "ready" {
		color = red
	}
	first := cut(fmt.Sprintf("millrace %s  %s  %s", v.Version, v.Addr, v.State), width)
	if rest := fmt.Sprintf("  up %s  %s", (time.Duration(v.UptimeSeconds) * time.Second),
		v.Time.Local().Format(time.TimeOnly)); v.Version != "" && len(first)+len(rest) <= width {
		first += rest
	}
	lines := []string{style.paint(cmp.Or(color, bold), first)}
	if v.Problem != "" {
		lines = append(lines, style.paint(red, cut("trying again: "+v.Problem, width)))
	}
	if v.Version == "" {
		return lines
	}
	var conns []string
	for _, name := range slices.Sorted(maps.Keys(v.Connections)) {
		conns = append(conns, fmt.Sprintf("%s %d", name, v.Connections[name].Open))
	}
	var sessions []string
	for _, name := range slices.Sorted(maps.Keys(v.Sessions)) {
		sessions = append(sessions, fmt.Sprintf("%s %d", strings.ReplaceAll(name, "_", " "), v.Sessions[name]))
	}
	return append(lines,
		cut(fmt.Sprintf("cpu %.2f of %d  memory %s of %s (%s for batches)  resident %s", v.CPU, v.Process.Processors,
			byteText(v.Memory.Leased), byteText(v.Memory.Budget), byteText(v.Memory.Reserved),
			byteText(v.Process.ResidentBytes)), width),
		cut(fmt.Sprintf("connections %s  sessions %s  goroutines %d", cmp.Or(strings.Join(conns, ", "), "0"),
			cmp.Or(strings.Join(sessions, ", "), "0"), v.Process.Goroutines), width),
		"")
}

// column is a column of a table: its title and width. The first column takes the remaining width and is left-aligned.
// In a narrow terminal the last columns are left out.
type column struct {
	title string
	width int
}

// leastName is the least width of the first column.
const leastName = 8

// tableLine returns the cells as a line.
func tableLine(columns []column, width int, cells []string) string {
	rest, n := width, 1
	for _, c := range columns[1:] {
		if rest-c.width-1 < leastName {
			break
		}
		rest, n = rest-c.width-1, n+1
	}
	var b strings.Builder
	b.WriteString(pad(cut(cells[0], rest), rest))
	for i, c := range columns[1:n] {
		text := cut(cells[i+1], c.width)
		b.WriteString(strings.Repeat(" ", 1+c.width-len([]rune(text))) + text)
	}
	return cut(strings.TrimRight(b.String(), " "), width)
}

func titles(columns []column) []string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = c.title
	}
	return out
}

var modelColumns = []column{
	{"MODEL", 0}, {"state", 6}, {"busy", 5}, {"wait", 5}, {"in/s", 7}, {"out/s", 7}, {"drop/s", 7}, {"err/s", 6},
	{"p50 ms", 6}, {"p99", 6}, {"batch", 5},
}

// stateWords are the states of models in the width of their column.
var stateWords = map[string]string{"READY": "ready", "LOADING": "load", "UNAVAILABLE": "down", "UNLOADING": "unload"}

func (v *topView) modelLines(width int, style topStyle) []string {
	if v.Version == "" {
		return nil
	}
	lines := []string{style.paint(bold, tableLine(modelColumns, width, titles(modelColumns)))}
	for _, m := range v.Models {
		color := plain
		switch {
		case m.State != "READY" || m.Errors > 0:
			color = red
		case m.Drops > 0:
			color = yellow
		}
		lines = append(lines, style.paint(color, tableLine(modelColumns, width, []string{
			m.Name, cmp.Or(stateWords[m.State], m.State), fmt.Sprintf("%d/%d", m.Busy, m.Workers),
			strconv.Itoa(m.Waiting),
			number(m.In), number(m.Results), number(m.Drops), number(m.Errors), number(m.P50), number(m.P99),
			number(m.Rows),
		})))
		if m.Reason != "" {
			lines = append(lines, style.paint(red, cut("  "+m.Reason, width)))
		}
	}
	if len(v.Models) == 0 {
		lines = append(lines, style.paint(faint, cut("no model is loaded", width)))
	}
	return lines
}

var streamColumns = []column{
	{"STREAM", 0}, {"state", 10}, {"model", 10}, {"in/s", 6}, {"out/s", 6}, {"drop/s", 6}, {"err/s", 5}, {"age s", 6},
	{"opened", 6},
}

func (v *topView) streamLines(width int, style topStyle) []string {
	if len(v.Streams) == 0 {
		return nil
	}
	lines := []string{style.paint(bold, tableLine(streamColumns, width, titles(streamColumns)))}
	for _, s := range v.Streams {
		color, state, age := plain, s.State, "-"
		if s.Paused && s.State == "running" {
			state = "paused"
		}
		switch {
		case s.State == "failed" || s.State == "waiting" || s.Errors > 0:
			color = red
		case s.Drops > 0:
			color = yellow
		}
		if s.AgeSeconds >= 0 {
			age = number(s.AgeSeconds)
		}
		lines = append(lines, style.paint(color, tableLine(streamColumns, width, []string{
			s.Name, state, s.Model, number(s.FPS), number(s.Results), number(s.Drops), number(s.Errors), age,
			strconv.FormatUint(s.Restarts+1, 10),
		})))
		if s.Error != "" {
			lines = append(lines, style.paint(red, cut("  "+s.Error, width)))
		}
	}
	return lines
}

// number returns a number of 0 or more in at most five characters.
func number(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 99.95:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case x < 99999.5:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x < 1e6:
		return strconv.FormatFloat(x/1e3, 'f', 0, 64) + "k"
	}
	return strconv.FormatFloat(x/1e6, 'f', 1, 64) + "M"
}

// byteText returns a number of bytes for people.
func byteText(n int64) string {
	switch {
	case n >= 1<<30:
		return strconv.FormatFloat(float64(n)/(1<<30), 'f', 1, 64) + " GiB"
	case n >= 1<<20:
		return strconv.FormatInt(n>>20, 10) + " MiB"
	}
	return strconv.FormatInt(n>>10, 10) + " KiB"
}

// cut returns a text without control characters, in at most width characters.
func cut(text string, width int) string {
	runes := make([]rune, 0, len(text))
	for _, r := range text {
		if unicode.IsControl(r) {
			r = ' '
		}
		runes = append(runes, r)
	}
	if len(runes) <= width {
		return string(runes)
	}
	if width < 1 {
		return ""
	}
	return string(runes[:width-1]) + "…"
}

// pad returns a text in at least width characters.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(width-len([]rune(text)), 0))
}
