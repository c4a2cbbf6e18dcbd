package container

import (
	"bytes"
	"strconv"
	"strings"
)

// maxProgress is the longest line that can be a line of progress.
const maxProgress = 100

// progressLines reports the progress in lines of stdout such as "progress 3/10 pages".
type progressLines struct {
	report func(done, total int64, unit string)
	line   []byte // begin of the current line, of at most maxProgress+1 bytes
}

// Write implements io.Writer.
func (p *progressLines) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		part, rest, ends := bytes.Cut(b, []byte{'\n'})
		p.line = append(p.line, part[:min(len(part), maxProgress+1-len(p.line))]...)
		if b = rest; !ends {
			break
		}
		if done, total, unit, ok := parseProgress(string(p.line)); ok {
			p.report(done, total, unit)
		}
		p.line = p.line[:0]
	}
	return n, nil
}

// parseProgress reads a line "progress DONE/TOTAL UNIT". "/TOTAL" and "UNIT" may be missing.
func parseProgress(line string) (done, total int64, unit string, ok bool) {
	words := strings.Fields(line)
	if len(line) > maxProgress || len(words) < 2 || len(words) > 3 || words[0] != "progress" {
		return 0, 0, "", false
	}
	a, b, both := strings.Cut(words[1], "/")
	done, err := strconv.ParseInt(a, 10, 64)
	if err == nil && both {
		total, err = strconv.ParseInt(b, 10, 64)
	}
	if err != nil || done < 0 || both && (total < 1 || done > total) {
		return 0, 0, "", false
	}
	return done, total, strings.Join(words[2:], ""), true
}
