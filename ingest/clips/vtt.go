package clips

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// vtt writes the lines about the objects of a clip as WebVTT (www.w3.org/TR/webvtt1): a cue for each object, with its
// label at the top left corner of its box, until the next line.
type vtt struct {
	lines  *bufio.Scanner
	offset int64 // of the first picture in the video, in µs
	out    []byte
	ended  bool // no line follows

	waiting []objectsLine // sorted by time: models have their own delays
	bytes   int
	step    int64 // between two lines before, in µs; 0 = unknown
}

// objectsLine is a line of a .boxes.jsonl.
type objectsLine struct {
	At      int64   `json:"at_us"`
	Width   float64 `json:"width"`
	Height  float64 `json:"height"`
	Objects []struct {
		Box   [4]float64      `json:"box"`
		Track int64           `json:"track"`
		Class json.RawMessage `json:"class"`
		Score *float64        `json:"score"`
	} `json:"objects"`

	bytes int
}

// Lines wait for lines of an earlier time, at most vttLines with vttBytes. A line has maxVTTLine at most.
const vttLines, vttBytes, maxVTTLine = 64, 1 << 20, 16 << 20

// vttHold is how long boxes stay at most: frames without objects have no line.
const vttHold = int64(time.Second / time.Microsecond)

// VTT returns the objects of the clip as WebVTT, from the lines of its file .boxes.jsonl.
func (c *Clip) VTT(lines io.Reader) io.Reader {
	v := &vtt{lines: bufio.NewScanner(lines), offset: c.OffsetUS, out: []byte("WEBVTT\n")}
	v.lines.Buffer(nil, maxVTTLine)
	return v
}

// Read implements io.Reader.
func (v *vtt) Read(p []byte) (int, error) {
	for len(v.out) == 0 {
		v.read()
		if len(v.waiting) == 0 {
			return 0, cmp.Or(v.lines.Err(), io.EOF)
		}
		v.cues()
	}
	n := copy(p, v.out)
	v.out = v.out[n:]
	return n, nil
}

// read reads lines up to the limits. The last line of a clip that is being written may be incomplete.
func (v *vtt) read() {
	for !v.ended && (len(v.waiting) < 2 || len(v.waiting) < vttLines && v.bytes < vttBytes) {
		if v.ended = !v.lines.Scan(); v.ended {
			return
		}
		var l objectsLine
		if json.Unmarshal(v.lines.Bytes(), &l) != nil || l.Width <= 0 || l.Height <= 0 {
			continue
		}
		l.bytes = len(v.lines.Bytes())
		i := len(v.waiting)
		for i > 0 && v.waiting[i-1].At > l.At {
			i--
		}
		v.waiting = slices.Insert(v.waiting, i, l)
		v.bytes += l.bytes
	}
}

// cues writes the objects of the next line.
func (v *vtt) cues() {
	l := v.waiting[0]
	v.waiting = v.waiting[1:]
	v.bytes -= l.bytes
	step, hold := vttHold, vttHold
	if i := slices.IndexFunc(v.waiting, func(o objectsLine) bool { return o.At > l.At }); i >= 0 {
		step = v.waiting[i].At - l.At
	}
	if v.step > 0 {
		hold = min(hold, 2*v.step)
	}
	if step < vttHold {
		v.step = step
	}
	from := l.At + v.offset
	to := max(from+min(step, hold), from+1000) // times have milliseconds
	v.out = v.out[:0]
	for _, o := range l.Objects {
		x, y := percent(o.Box[0], l.Width), percent(o.Box[1], l.Height)
		v.out = fmt.Appendf(v.out, "\n%s --> %s line:%d%% position:%d%%,line-left size:%d%% align:left\n%s",
			vttTime(from), vttTime(to), y, x, 100-x, vttText(o.Class))
		if o.Track != 0 {
			v.out = fmt.Appendf(v.out, " #%d", o.Track)
		}
		if o.Score != nil {
			v.out = fmt.Appendf(v.out, " %d%%", percent(*o.Score, 1))
		}
		v.out = append(v.out, '\n')
	}
}

// percent returns a share as 0 to 100.
func percent(v, of float64) int {
	return int(min(100, max(0, math.Round(100*v/of))))
}

func vttTime(us int64) string {
	ms := max(0, us) / 1000
	return fmt.Sprintf("%02d:%02d:%02d.%03d", ms/3_600_000, ms/60_000%60, ms/1000%60, ms%1000)
}

// vttText returns a class, a string or a number, as the text of a cue, which ends with an empty line.
func vttText(class json.RawMessage) string {
	var name string
	if json.Unmarshal(class, &name) != nil && len(class) > 0 {
		name = "class " + string(class)
	}
	name = strings.TrimSpace(strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return ' '
		}
		return r
	}, name))
	return cmp.Or(strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(name), "object")
}
