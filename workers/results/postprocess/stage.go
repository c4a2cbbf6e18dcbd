package postprocess

import (
	"millrace/stream"
	"millrace/workers/results"
)

func init() { results.Register(results.Compute, "output", newStage) }

// On reports whether a kind of result is set.
func (c Config) On() bool { return c.Kind() != "" }

func newStage(c Config, env *results.Env) (results.Stage, error) {
	d, err := New(c, env.Worker)
	if err != nil {
		return results.Stage{}, err
	}
	env.Model.Outputs, env.Model.Classes = d.Specs(), d.classes()
	return results.Stage{After: func(r *stream.Request, in results.Outputs) ([]stream.Tensor, error) {
		return d.Decode(in.Tensors, in.Row, r.Rows, Mapping{X: r.MapX, Y: r.MapY, Width: r.SentWidth,
			Height: r.SentHeight})
	}}, nil
}
