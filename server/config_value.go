package server

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"millrace/stream"
)

// Size is a number of bytes, written "1GiB", "512MiB", "64KiB", "1.5GB" or
// plain.
type Size int64

var units = []struct {
	name string
	size float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// ParseSize reads a size; letters may be small.
func ParseSize(s string) (Size, error) {
	number, unit := strings.TrimSpace(s), 1.0
	for _, u := range units {
		if len(number) > len(u.name) && strings.EqualFold(number[len(number)-len(u.name):], u.name) {
			number, unit = strings.TrimSpace(number[:len(number)-len(u.name)]), u.size
			break
		}
	}
	if strings.Trim(number, "0123456789.") != "" {
		return 0, badSize(s)
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil && unit == 1 {
		return Size(n), nil
	}
	f, err := strconv.ParseFloat(number, 64)
	if f *= unit; err != nil || f != math.Trunc(f) || f >= math.MaxInt64 {
		return 0, badSize(s)
	}
	return Size(f), nil
}

func badSize(s string) error { return fmt.Errorf("%q is not a size such as 8MiB or 1GiB", s) }

// String writes the size as ParseSize reads it.
func (s Size) String() string {
	for i := 3; i >= 0; i-- {
		if u := Size(units[i].size); s >= u && s%u == 0 {
			return strconv.FormatInt(int64(s/u), 10) + units[i].name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Duration is a time span, written "5ms", "1.5s" or "2m".
type Duration time.Duration

// String writes the duration as time.ParseDuration reads it, without the units
// that are zero.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// scalar is a value as it was written. What it means depends on where it goes.
type scalar struct {
	text   string
	quoted bool // certainly a string
}

// param is the scalar as a parameter of a worker: true, a number, or text.
func (s scalar) param() any {
	if s.quoted {
		return s.text
	}
	switch s.text {
	case "true":
		return true
	case "false":
		return false
	}
	if n, err := strconv.ParseInt(s.text, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(s.text, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) && !strings.ContainsAny(s.text, "xX_") {
		return f
	}
	return s.text
}

// ParseParam reads a parameter of a worker as --model does: true, false and
// numbers are that, everything else is text, and quotes (") make text of it.
func ParseParam(s string) any { return unquote(s).param() }

// assign reads the values into what ptr points to. Only a *[]string and a
// *[3]float32 take more than one. A number of 0 is refused where 0 would mean
// "the default", so that it cannot be mistaken for "none".
func assign(ptr any, vs []scalar) error {
	switch p := ptr.(type) {
	case *[]string:
		*p = nil
		for _, v := range vs {
			*p = append(*p, v.text)
		}
		return nil
	case *[3]float32:
		return assignChannels(p, vs)
	}
	if len(vs) != 1 {
		return fmt.Errorf("is a list: want one value")
	}
	text := vs[0].text
	if text == "" {
		if _, isText := ptr.(*string); !isText || !vs[0].quoted {
			return fmt.Errorf("is empty: leave it out for its default")
		}
	}
	var err error
	zero := false
	switch p := ptr.(type) {
	case *string:
		*p = text
	case *bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%q is not true or false", text)
		}
		*p = text == "true"
	case *int:
		if *p, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		zero = *p == 0
	case *float64:
		if *p, err = strconv.ParseFloat(text, 64); err != nil || math.IsNaN(*p) || math.IsInf(*p, 0) {
			return fmt.Errorf("%q is not a number", text)
		}
		zero = *p == 0
	case *Size:
		if *p, err = ParseSize(text); err != nil {
			return err
		}
		zero = *p == 0
	case *Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 5ms or 10s", text)
		}
		if d < 0 {
			return fmt.Errorf("%v is negative", d)
		}
		*p = Duration(d)
		zero = d == 0
	default:
		panic(fmt.Sprintf("server: no values are read into a %T", ptr))
	}
	if zero {
		return fmt.Errorf("%s is not possible: leave it out for its default", text)
	}
	return nil
}

// assignChannels takes one number for all channels, or three.
func assignChannels(p *[3]float32, vs []scalar) error {
	if len(vs) != 1 && len(vs) != 3 {
		return fmt.Errorf("has %d numbers: want one for all channels, or three", len(vs))
	}
	for i := range p {
		v := vs[min(i, len(vs)-1)]
		f, err := strconv.ParseFloat(v.text, 32)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%q is not a number", v.text)
		}
		p[i] = float32(f)
	}
	return nil
}

// suggest names the known word that is nearest to a misspelt one, as
// " (did you mean x?)", or nothing when none is near.
func suggest(word string, known []string) string {
	best, at := "", max(2, len(word)/3)+1
	for _, k := range known {
		if d := distance(word, k); d < at && d < len(k) {
			best, at = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
}

// distance is the number of letters to add, leave out or change.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return math.MaxInt
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

func fault(path, format string, args ...any) error {
	return stream.Errorf(stream.InvalidArgument, path, format, args...)
}
