package openapi

import (
	"encoding/json"
	"fmt"
)

// Takes says what requests to a model may have or leave out, besides what its metadata say.
type Takes struct {
	Picture  *Picture `json:"picture,omitempty"`
	Optional []string `json:"optional,omitempty"` // inputs that requests may leave out
}

// Picture is the picture that a request may have in place of the tensor of an input.
type Picture struct {
	Input  string `json:"input"`
	Width  int    `json:"width,omitempty"` // to which the server scales it; 0 = the picture keeps its size, or Steps says more
	Height int    `json:"height,omitempty"`
	Color  string `json:"color,omitempty"` // empty if Steps says it
	Alone  bool   `json:"alone"`           // a request may have the picture and nothing else
	Whole  bool   `json:"whole"`           // frames of a video are needed in the size of the video: a step takes them as they were sent
	// Steps are the pictures that the steps of a graph get, when they differ.
	Steps []PictureStep `json:"steps,omitempty"`
}

// PictureStep is the picture that a step of a graph gets.
type PictureStep struct {
	Step   string `json:"step"`
	Width  int    `json:"width,omitempty"` // 0 = the picture, or the crop, keeps its size
	Height int    `json:"height,omitempty"`
	Color  string `json:"color"`
	Crop   bool   `json:"crop,omitempty"` // each crop of the picture, and not the whole one
}

// String describes the picture.
func (p *Picture) String() string {
	text := fmt.Sprintf("a picture as %s: JPEG, PNG or WebP of any size", p.Input)
	if len(p.Steps) == 0 {
		text += ", which becomes " + pixels(p.Color, p.Width, p.Height)
	}
	for _, s := range p.Steps {
		what := "it as "
		if s.Crop {
			what = "each crop as "
		}
		text += "; step " + s.Step + " gets " + what + pixels(s.Color, s.Width, s.Height)
	}
	if !p.Alone {
		text += "; with the other inputs"
	}
	return text
}

// pixels describes the form of a picture; width 0 = it keeps its size.
func pixels(color string, width, height int) string {
	if width == 0 {
		return color + " in its own size"
	}
	return fmt.Sprintf("%s of %dx%d", color, width, height)
}

// The members of a model's operation with its version and what it takes.
const versionKey, takesKey = "x-millrace-version", "x-millrace-takes"

// TakesOf returns what a document says that a version of a model takes, besides its metadata; "" = the version that answers
// requests without one. The result is empty for a version that the document does not describe.
func TakesOf(document []byte, model, version string) (takes Takes, err error) {
	var of struct {
		Paths map[string]map[string]struct {
			Model   string `json:"x-millrace-model"`
			Version string `json:"x-millrace-version"`
			Takes   Takes  `json:"x-millrace-takes"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(document, &of); err != nil {
		return takes, fmt.Errorf("the server's OpenAPI document cannot be read: %w", err)
	}
	for _, operations := range of.Paths {
		for _, o := range operations {
			if o.Model == model && (version == "" || version == o.Version) {
				return o.Takes, nil
			}
		}
	}
	return takes, nil
}
