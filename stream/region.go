package stream

import (
	"strconv"
	"strings"
)

// Region is a part of a picture, in pixels of the frame as sent and upright, or, of a scaled frame, of the picture
// before scaling (Frame.SourceWidth). Results for a region are in pixels of the whole picture. The zero Region is the
// whole picture.
type Region struct {
	X, Y          uint16 // the upper left pixel
	Width, Height uint16
}

// ParseRegion parses the region in the URL option roi: X,Y,WIDTH,HEIGHT.
func ParseRegion(s string) (r Region, err error) {
	parts := strings.Split(s, ",")
	into := [...]*uint16{&r.X, &r.Y, &r.Width, &r.Height}
	ok := len(parts) == len(into)
	for i := 0; ok && i < len(into); i++ {
		n, e := strconv.ParseUint(parts[i], 10, 16)
		*into[i], ok = uint16(n), e == nil
	}
	if !ok || r.Width == 0 || r.Height == 0 {
		return Region{}, Errorf(InvalidArgument, "roi", "%.64q is not a region: want X,Y,WIDTH,HEIGHT in pixels", s)
	}
	return r, nil
}
