package main

import (
	"regexp"
	"slices"
	"strings"

	"millrace/client"
	"millrace/internal/openapi"
)

// findPicture notes the input of a program, among several inputs, that takes a picture in one BYTES element. schemas
// are the schemas of the inputs of the program's route; nil = the model is no program.
func (c *exampleCall) findPicture(picture *openapi.Picture, schemas map[string]any) {
	if picture == nil || picture.Alone || schemas == nil || !c.InJSON {
		return
	}
	others := 0
	for i := range c.Inputs {
		if in := &c.Inputs[i]; in.Name == picture.Input {
			in.Picture, c.Mixed = true, true
		} else {
			others += in.Elements
		}
	}
	c.Mixed = c.Mixed && others <= maxPrinted
}

// findSaved notes whether outputs must be binary, since a BYTES element may be no text, and the output to save.
// document describes the routes of a program; nil = the model is no program.
func (c *exampleCall) findSaved(outputs []client.Tensor, document map[string]any) {
	if c.Decoupled || len(c.Routes) > 0 {
		return
	}
	reply := at(document, "paths", "/infer", "post", "responses", "200", "content")
	if schema := at(reply, "application/json", "schema"); len(schema) > 0 {
		return // the program declares JSON answers
	}
	element := func(t client.Tensor) bool {
		return t.Datatype == "BYTES" && len(t.Shape) > 0 && t.Shape[len(t.Shape)-1] == 1
	}
	switch {
	case len(outputs) == 0 && document != nil:
		c.Binary = true
	case slices.ContainsFunc(outputs, element):
		c.Binary = true
		if last := outputs[len(outputs)-1]; element(last) {
			c.Save = last.Name
		}
	}
}

// SaveFile returns the name of the file for the saved output.
func (c *exampleCall) SaveFile() string {
	if plainName.MatchString(c.Save) {
		return c.Save + ".bin"
	}
	return "output.bin"
}

// plainName matches names that are valid file names in every language and shell.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// BeforePicture returns the request with a picture in JSON up to the base64 of the picture.
func (c *exampleCall) BeforePicture() string {
	before, _, _ := strings.Cut(c.mixedJSON(), pictureMark)
	return before
}

// AfterPicture returns the part of the request with a picture after the base64.
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
