package inference

import (
	"millrace/internal/openapi"
	"millrace/stream"
)

// Describe describes a model as the OpenAPI document does.
func Describe(m *stream.Model) openapi.Model {
	out := openapi.Model{ModelMetadata: ModelMetadata(m), Any: m.AcceptsAnyInput, Program: m.App != nil,
		Element:   m.TakesBytes(),
		Decoupled: m.Decoupled}
	others := 0 // required inputs that a picture alone does not fill
	for i := range m.Inputs {
		in := &m.Inputs[i]
		switch {
		case in.Optional:
			out.Optional = append(out.Optional, in.Name)
		case m.AcceptsAnyInput && out.Picture == nil && in.Color != "":
			out.Picture = &openapi.Picture{Input: in.Name, Width: max(in.Shape[1], 0), Height: max(in.Shape[0], 0),
				Color: in.Color}
		default:
			others++
		}
	}
	if s := m.Image; s != nil && !m.AcceptsAnyInput {
		out.Picture, others = &openapi.Picture{Input: m.Inputs[0].Name, Width: s.Width, Height: s.Height,
			Color: s.Color}, 0
	}
	if out.Picture != nil {
		out.Picture.Alone = others == 0
		width, _ := m.FrameSize()
		out.Picture.Whole = width == 0
		for _, s := range m.PictureSteps {
			out.Picture.Steps = append(out.Picture.Steps, openapi.PictureStep(s))
			out.Picture.Width, out.Picture.Height, out.Picture.Color = 0, 0, ""
		}
	}
	return out
}
