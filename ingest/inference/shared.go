package inference

import (
	"strconv"

	"millrace/ingest/shm"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/coded"
)

// part is where in a client's shared memory a tensor is.
type part struct {
	region       *shm.Region // nil: the data are in the message
	offset, size uint64
}

// Shares reports whether the request places a tensor or output in shared memory. If so, call Share before Frame.
func (c *Call) Shares() bool {
	for i := range c.Request.Inputs {
		if sharesMemory(c.Request.Inputs[i].Params) {
			return true
		}
	}
	for i := range c.Request.Outputs {
		if sharesMemory(c.Request.Outputs[i].Params) {
			return true
		}
	}
	return false
}

func sharesMemory(params oip.Params) bool {
	_, found := params.Get(oip.SharedRegion)
	return found
}

// Share sets the shared memory for the request's tensors (nil = turned off) and the client of the request.
func (c *Call) Share(memory *shm.Registry, of shm.Client) { c.shared, c.sharing = memory, of }

// sharedPart reads the shared memory parameters of a tensor or output; at is the field in the request.
func (c *Call) sharedPart(params oip.Params, at string) (p part, err error) {
	var name string
	var found bool
	for i := range params {
		x := &params[i]
		switch key := x.Key; key {
		case oip.SharedRegion:
			if x.Kind != oip.String {
				return p, sharedError(at, key, "is not the name of a region")
			}
			name, found = x.Str, true
		case oip.SharedOffset, oip.SharedSize:
			if x.Kind != oip.Uint && (x.Kind != oip.Int || x.Int < 0) {
				return p, sharedError(at, key, "is not a number of bytes")
			}
			if key == oip.SharedOffset {
				p.offset = uint64(x.Int)
			} else {
				p.size = uint64(x.Int)
			}
		}
	}
	_, hasSize := params.Get(oip.SharedSize)
	_, hasOffset := params.Get(oip.SharedOffset)
	switch {
	case !found && !hasSize && !hasOffset:
		return p, nil
	case !found:
		return p, sharedError(at, oip.SharedRegion, "is missing")
	case !hasSize:
		return p, sharedError(at, oip.SharedSize, "is missing")
	}
	if err := c.shared.CheckClient(c.sharing); err != nil {
		return p, err
	}
	if p.region, err = c.shared.Acquire(c.sharing.Owner, name, p.offset, p.size); err == nil {
		c.regions = append(c.regions, p.region)
	}
	return p, inParameters(err, at)
}

// releaseRegions ends the use of shared memory: regions unregistered meanwhile are gone before the client has the
// answer.
func (c *Call) releaseRegions() {
	for i, g := range c.regions {
		c.shared.Release(g)
		c.regions[i] = nil
	}
	c.regions = c.regions[:0]
}

func sharedError(at, key, msg string) error {
	return stream.Errorf(stream.InvalidArgument, at+".parameters."+key,
		"%s: tensors in shared memory have %s, %s and optionally %s", msg, oip.SharedRegion, oip.SharedSize,
		oip.SharedOffset)
}

// inParameters moves the field of err, if the field is a parameter, into the parameters of at.
func inParameters(err error, at string) error {
	return coded.RenameFunc(err, func(field string) string {
		switch field {
		case oip.SharedRegion, oip.SharedOffset, oip.SharedSize:
			return at + ".parameters." + field
		}
		return field
	})
}

// readShared copies inputs from shared memory to leased memory, and finds the places for outputs in shared memory.
func (c *Call) readShared(m *stream.Model) error {
	for i := range c.Request.Inputs {
		t := &c.Request.Inputs[i]
		if len(t.Params) == 0 {
			continue
		}
		at := "inputs[" + strconv.Itoa(i) + "]"
		p, err := c.sharedPart(t.Params, at)
		if err != nil {
			return err
		}
		if p.region == nil {
			continue
		}
		if err := c.readInput(m, t, p, at); err != nil {
			return err
		}
	}
	clear(c.places)
	c.places = c.places[:0]
	for i := range c.Request.Outputs {
		if len(c.Request.Outputs[i].Params) == 0 {
			continue
		}
		p, err := c.sharedPart(c.Request.Outputs[i].Params, "outputs["+strconv.Itoa(i)+"]")
		if err != nil {
			return err
		}
		if p.region != nil && len(c.places) == 0 {
			c.places = append(c.places, make([]part, len(c.Request.Outputs))...)
		}
		if p.region != nil {
			c.places[i] = p
		}
	}
	return nil
}

func (c *Call) readInput(m *stream.Model, t *oip.Tensor, p part, at string) error {
	if len(t.Data) > 0 {
		return stream.Errorf(stream.InvalidArgument, at+".parameters."+oip.SharedRegion,
			"is given as well as data: want one of them")
	}
	if one := oip.SizeOf(t.Datatype); one > 0 { // before memory is leased
		n, err := oip.Elements(t.Shape)
		if err != nil {
			return stream.Errorf(stream.InvalidArgument, at+".shape", "%v: %w", t.Shape, err)
		}
		if p.size/uint64(one) != uint64(n) || p.size%uint64(one) != 0 {
			return stream.Errorf(stream.InvalidArgument, at+".parameters."+oip.SharedSize, "%s",
				oip.SizeMismatch(t, m.Name, n*one, int(p.size)))
		}
	}
	data := c.LeaseTensor(int(p.size))
	if data == nil {
		return stream.Errorf(stream.Overloaded, at, "no memory for %d bytes of shared memory (memory.budget): %w",
			p.size, oip.ErrMemory)
	}
	if err := p.region.Read(data[:p.size], p.offset); err != nil {
		return inParameters(err, at)
	}
	t.Data, t.Shared = data[:p.size:p.size], false
	if t.Datatype == oip.Bytes {
		in := stream.Tensor{Name: "x", Datatype: stream.Bytes, Shape: t.Shape, Data: t.Data}
		return coded.Rename(in.CheckSize(""), map[string]string{"x.data": at + ".data", "x.shape": at + ".shape"})
	}
	return nil
}

// writeShared writes output i of the request, t of the reply, to shared memory if requested. The reply omits the
// request's parameters, because Triton's C++ client takes an output with parameters for an output with binary data.
func (c *Call) writeShared(i int, t *oip.Tensor) error {
	if len(c.places) == 0 || c.places[i].region == nil {
		return nil
	}
	p, at := &c.places[i], "outputs["+strconv.Itoa(i)+"]"
	if size := uint64(len(t.Data)); size > p.size {
		return stream.Errorf(stream.InvalidArgument, at+".parameters."+oip.SharedSize,
			"is %d, and output %q has %d bytes: want a larger part of region %q", p.size, t.Name, size, p.region.Name)
	}
	if err := p.region.Write(t.Data, p.offset); err != nil {
		return inParameters(err, at)
	}
	t.Data, t.Shared = nil, true
	return nil
}
