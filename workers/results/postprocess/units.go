package postprocess

import "millrace/stream"

// unitCheck notices coordinates in another unit than the setting units: results would be plausible, at wrong places.
type unitCheck struct {
	normalised bool
	setting    string  // the name of the setting units
	output     string  // the name of the output with the coordinates
	farthest   float32 // the largest absolute coordinate since begin
}

const (
	// nearCorner is the largest coordinate, in pixels, at which all boxes of a frame count as normalised boxes, which
	// may slightly exceed the picture.
	nearCorner = 1.5
	// farOutside is the largest accepted normalised coordinate of a box that exceeds the picture.
	farOutside = 8
)

func (f *finder) unitCheck(units, output string) unitCheck {
	return unitCheck{normalised: units == "normalised", setting: "output." + f.kind + ".units", output: output}
}

func (u *unitCheck) begin() { u.farthest = 0 }

// see records the coordinates of a box or point of the result.
func (u *unitCheck) see(coordinates ...float32) {
	for _, v := range coordinates {
		if v = max(v, -v); v > u.farthest {
			u.farthest = v
		}
	}
}

// check returns an error when no coordinate since begin fits the configured unit. Coordinates of only 0 are accepted.
func (u *unitCheck) check() error {
	switch {
	case !u.normalised && u.farthest > 0 && u.farthest <= nearCorner:
		return stream.Errorf(stream.Internal, "outputs."+u.output,
			"has no coordinate above %.3g, which is not in pixels: set %s: normalised", u.farthest, u.setting)
	case u.normalised && u.farthest > farOutside:
		return stream.Errorf(stream.Internal, "outputs."+u.output,
			"has a coordinate of %.6g, which is not normalised to 0..1: set %s: pixels", u.farthest, u.setting)
	}
	return nil
}
