package postprocess

import "millrace/stream"

// unitCheck notices coordinates that are not in the unit that the setting units names: results would be in the wrong place
// and look right.
type unitCheck struct {
	normalised bool
	setting    string  // the name of the setting units
	output     string  // the name of the output with the coordinates
	farthest   float32 // the largest absolute coordinate since begin
}

const (
	// nearCorner is the largest coordinate in pixels up to which all boxes of a frame are taken for normalised boxes, which
	// may reach somewhat out of the picture.
	nearCorner = 1.5
	// farOutside is the largest normalised coordinate of a box that reaches out of the picture.
	farOutside = 8
)

func (f *finder) unitCheck(units, output string) unitCheck {
	return unitCheck{normalised: units == "normalised", setting: "output." + f.kind + ".units", output: output}
}

func (u *unitCheck) begin() { u.farthest = 0 }

// see takes note of the coordinates of a box or point that is part of the result.
func (u *unitCheck) see(coordinates ...float32) {
	for _, v := range coordinates {
		if v = max(v, -v); v > u.farthest {
			u.farthest = v
		}
	}
}

// check returns an error when no coordinate since begin can be in the unit that is set. Coordinates that are all 0 say nothing.
func (u *unitCheck) check() error {
	switch {
	case !u.normalised && u.farthest > 0 && u.farthest <= nearCorner:
		return stream.Errorf(stream.Internal, "outputs."+u.output, "has no coordinate above %.3g, which is not in pixels: set %s: normalised", u.farthest, u.setting)
	case u.normalised && u.farthest > farOutside:
		return stream.Errorf(stream.Internal, "outputs."+u.output, "has a coordinate of %.6g, which is not normalised to 0..1: set %s: pixels", u.farthest, u.setting)
	}
	return nil
}
