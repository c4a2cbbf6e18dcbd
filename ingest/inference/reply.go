package inference

import (
	"millrace/ingest/frames"
	"millrace/internal/oip"
)

// Reply makes c.Response from c.Result, with the outputs requested by c.Request, in the order of the request. The
// outputs' data are in the result's memory.
func (c *Call) Reply() error {
	if c.Several && len(c.Result.Outputs) == 0 { // the end of a request, after the answers
		c.ReplyNone()
		return nil
	}
	c.describe()
	outs := c.Response.Outputs[:0]
	if len(c.Request.Outputs) == 0 {
		for i := range c.Result.Outputs {
			outs = append(outs, frames.Message(&c.Result.Outputs[i]))
		}
	}
next:
	for i := range c.Request.Outputs {
		for j := range c.Result.Outputs {
			if c.Result.Outputs[j].Name == c.Request.Outputs[i].Name {
				outs = append(outs, frames.Message(&c.Result.Outputs[j]))
				if p, ok := c.Request.Outputs[i].Params.Get(classification); ok {
					if err := c.classes(&outs[len(outs)-1], c.Result.Model, p.Int, i); err != nil {
						return err
					}
				}
				if err := c.writeShared(i, &outs[len(outs)-1]); err != nil {
					return err
				}
				continue next
			}
		}
		return noOutput(i, c.Request.Outputs[i].Name, c.Result.Model)
	}
	c.Response.Outputs = outs
	if !c.Several {
		c.releaseRegions()
	}
	return nil
}

// ReplyNone makes a c.Response without outputs.
func (c *Call) ReplyNone() {
	c.describe()
	c.Response.Outputs = c.Response.Outputs[:0]
}

// describe sets all fields of the reply except the outputs.
func (c *Call) describe() {
	r, to := c.Result, &c.Response
	to.ModelName, to.ModelVersion, to.ID = r.Model.Name, r.Model.Version, c.Request.ID
	to.Params = to.Params[:0]
	if r.Width > 0 && r.Height > 0 {
		to.Params = append(to.Params,
			oip.Param{Key: "width", Kind: oip.Int, Int: int64(r.Width)},
			oip.Param{Key: "height", Kind: oip.Int, Int: int64(r.Height)})
	}
	to.Params = frames.AppendParams(to.Params, r.Params)
}
