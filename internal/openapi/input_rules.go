package openapi

import (
	"encoding/json"
	"fmt"
)

// InputRules describes the optional and additional parts of requests to a model, besides the metadata.
type InputRules struct {
	Picture  *Picture `json:"picture,omitempty"`
	Optional []string `json:"optional,omitempty"` // inputs not required in requests
}

// Picture is the picture that may replace the tensor of an input in a request.
type Picture struct {
	Input  string `json:"input"`
	Width  int    `json:"width,omitempty"` // after scaling by the server; 0 = the picture keeps its size, or see Steps
	Height int    `json:"height,omitempty"`
	Color  string `json:"color,omitempty"` // empty if given by Steps
	Alone  bool   `json:"alone"`           // a request may have the picture and nothing else
	Whole  bool   `json:"whole"`           // frames of a video are needed in full size: a step takes frames as sent
	// Steps are the pictures for the steps of a graph, if different.
	Steps []PictureStep `json:"steps,omitempty"`
}

// PictureStep is the picture for a step of a graph.
type PictureStep struct {
	Step   string `json:"step"`
	Width  int    `json:"width,omitempty"` // 0 = the picture, or the crop, keeps its size
	Height int    `json:"height,omitempty"`
	Color  string `json:"color"`
	Crop   bool   `json:"crop,omitempty"` // each crop of the picture instead of the whole picture
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

// pixels describes the form of a picture; width 0 = the picture keeps its size.
func pixels(color string, width, height int) string {
	if width == 0 {
		return color + " in its own size"
	}
	return fmt.Sprintf("%s of %dx%d", color, width, height)
}

// The members of a model's operation with the version and with the input rules of the model.
const versionKey, inputRulesKey = "x-millrace-version", "x-millrace-takes"

// InputRulesOf returns the input rules of a version of a model from a document; version "" = the default version. The
// result is empty for a version not described in the document.
func InputRulesOf(document []byte, model, version string) (takes InputRules, err error) {
	var of struct {
		Paths map[string]map[string]struct {
			Model   string     `json:"x-millrace-model"`
			Version string     `json:"x-millrace-version"`
			Takes   InputRules `json:"x-millrace-takes"`
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
