package rules

import "time"

// HeatMinutes is how many minutes a Heat keeps, the present minute included.
const HeatMinutes = 60

const (
	heatColumns = 64 // cells of the picture
	heatRows    = 36
	heatCells   = heatColumns * heatRows

	heatStep    = 50 * time.Millisecond // unit of the minutes before the present minute
	maxHeatStep = time.Second           // of one frame: where objects were in a longer gap is not known
)

// Heat has where the objects of a stream were in the last hour: for each minute and cell of the picture, the time of
// all objects there. A nil Heat keeps nothing. A minute with objects takes 4.5 KiB.
type Heat struct {
	minute  int64               // Unix minute of present
	present *[heatCells]float32 // seconds; nil = none in the minute
	before  [HeatMinutes - 1]heatMinute
}

// heatMinute is an earlier minute, at the index of its number modulo the minutes kept.
type heatMinute struct {
	minute int64
	cells  *[heatCells]uint16 // in units of heatStep
}

// Add adds the time of an object at a place, a share of the picture, to the minute of at by the server's clock.
func (h *Heat) Add(at time.Time, x, y float64, d time.Duration) {
	if h == nil {
		return
	}
	if m := at.Unix() / 60; m != h.minute {
		h.keep()
		h.minute = m
	}
	if h.present == nil {
		h.present = new([heatCells]float32)
	}
	column, row := int(min(max(x, 0), 1)*heatColumns), int(min(max(y, 0), 1)*heatRows)
	h.present[min(row, heatRows-1)*heatColumns+min(column, heatColumns-1)] += float32(min(d, maxHeatStep).Seconds())
}

// keep puts the present minute to the minutes before.
func (h *Heat) keep() {
	if h.present == nil {
		return
	}
	m := &h.before[h.minute%(HeatMinutes-1)]
	switch {
	case m.cells == nil:
		m.cells = new([heatCells]uint16)
	case m.minute != h.minute: // otherwise the clock has gone back to the minute
		clear(m.cells[:])
	}
	m.minute = h.minute
	for i, v := range h.present {
		m.cells[i] = uint16(min(float64(m.cells[i])+float64(v)/heatStep.Seconds()+0.5, 1<<16-1))
	}
	h.present = nil
}

// clear forgets all minutes.
func (h *Heat) clear() {
	if h != nil {
		*h = Heat{}
	}
}

// HeatMap is the time of all objects in the cells of the picture.
type HeatMap struct {
	Columns int       `json:"columns"`
	Rows    int       `json:"rows"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Seconds []float64 `json:"seconds"` // by cell, from left to right and from top to bottom
}

// Map returns the times of the last minutes, the present minute included.
func (h *Heat) Map(at time.Time, minutes int) HeatMap {
	now := at.Unix() / 60
	first := now - int64(minutes) + 1
	out := HeatMap{heatColumns, heatRows, time.Unix(60*first, 0).UTC(), at.UTC(), make([]float64, heatCells)}
	if h == nil {
		return out
	}
	within := func(m int64) bool { return m >= first && m <= now }
	if h.present != nil && within(h.minute) {
		for i, v := range h.present {
			out.Seconds[i] = float64(v)
		}
	}
	for i := range h.before {
		if m := &h.before[i]; m.cells != nil && within(m.minute) {
			for i, v := range m.cells {
				out.Seconds[i] += float64(v) * heatStep.Seconds()
			}
		}
	}
	for i, v := range out.Seconds {
		out.Seconds[i] = float64(int(v*100+0.5)) / 100
	}
	return out
}
