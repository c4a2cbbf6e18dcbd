package main

import (
	"slices"
	"strings"

	"millrace/client"
)

// findPicture notes which of several inputs takes a picture of any size, in one element of BYTES: an input of a program whose
// schema is that of a file and whose tensor is pixels.
func (c *exampleCall) findPicture(inputs []client.Tensor, schemas map[string]any) {
	for i, t := range inputs {
		pixels := t.Datatype == "UINT8" && len(t.Shape) == 3 && t.Shape[0] < 0 && t.Shape[1] < 0
		if len(inputs) > 1 && pixels && at(schemas, t.Name)["format"] == "byte" && c.JSON != "" {
			c.Inputs[i].Picture, c.Mixed = true, true
			return // a request has one picture
		}
	}
}

// BeforePicture returns the request with a picture in JSON up to the base64 of the picture.
func (c *exampleCall) BeforePicture() string {
	before, _, _ := strings.Cut(c.mixedJSON(), pictureMark)
	return before
}

// AfterPicture returns what follows the base64 in the request with a picture.
func (c *exampleCall) AfterPicture() string {
	_, after, _ := strings.Cut(c.mixedJSON(), pictureMark)
	return after
}

// pictureMark is where mixedJSON has the base64 of a picture; no JSON has this character otherwise.
const pictureMark = "\x00"

// mixedJSON returns the request with a picture and tensors.
func (c *exampleCall) mixedJSON() string {
	with := *c
	with.Inputs = slices.Clone(c.Inputs)
	for i := range with.Inputs {
		if in := &with.Inputs[i]; in.Picture {
			in.Datatype, in.Shape, in.Elements, in.Zero = "BYTES", []int{1}, 1, `"`+pictureMark+`"`
		}
	}
	return with.requestJSON()
}
