package graph

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"

	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// cropRun is a crop step of one run.
type cropRun struct {
	rows      []*cropOutputs // by box
	ids       []int64        // by box, of a crop with refresh
	cropsLeft int            // boxes without outputs
	cut       int            // boxes beyond the step's bound
}

// cropOutputs are a step's outputs for one box, in the order of the step's ports.
type cropOutputs struct {
	tensors []stream.Tensor
	lease   *buf.Buf // the memory of the outputs
}

// release releases the present rows.
func (cr *cropRun) release() {
	for i, row := range cr.rows {
		if row != nil {
			row.lease.Release()
			cr.rows[i] = nil
		}
	}
}

// boxCrop is a box whose part of the picture has to run.
type boxCrop struct {
	box    int
	region stream.Region
}

// crop begins a step that runs for each box.
func (n *run) crop(s *step) {
	parts, cr, err := n.parts(s)
	if err != nil {
		n.fail(s.at, err)
		return
	}
	n.mu.Lock()
	n.crops[s.index] = cr
	left := cr.cropsLeft
	n.mu.Unlock()
	switch {
	case left == 0:
		n.join(s)
	case !compressed(n.r.Codec):
		n.sendParts(s, parts, nil)
	case len(parts) == 1:
		n.sendParts(s, parts, nil) // the worker of the step's model decodes the picture, once
	default:
		n.mu.Lock()
		n.busy++
		n.mu.Unlock()
		n.w.cutter.add(cutting{n, s, parts})
	}
}

func compressed(c stream.Codec) bool { return c != stream.RGB24 && c != stream.NV12 }

// parts reads a step's boxes, and takes the kept outputs of their ids.
func (n *run) parts(s *step) (parts []boxCrop, cr *cropRun, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.values[s.picture].state != payload {
		return nil, nil, s.errorf(stream.InvalidArgument, "crop",
			"needs the picture, but the request has tensors: send the picture as JPEG, PNG, WebP, RGB24 or NV12")
	}
	set, boxes := s.set.Crop, &n.values[s.boxes].tensor
	if boxes.Datatype != stream.Float32 || len(boxes.Data)%16 != 0 || len(boxes.Shape) == 0 ||
		boxes.Shape[len(boxes.Shape)-1] != 4 || len(boxes.Shape) > 2 && boxes.Shape[0] != 1 {
		return nil, nil, s.errorf(stream.InvalidArgument, "crop.boxes",
			"tensor %s is %s %v: want the boxes of one frame, FP32 [n 4]", boxes.Name, boxes.Datatype, boxes.Shape)
	}
	count := len(boxes.Data) / 16
	cr = &cropRun{cut: max(0, count-set.Max)}
	count -= cr.cut
	cr.rows = make([]*cropOutputs, count)
	var ids []byte
	if s.ids >= 0 {
		if ids = n.values[s.ids].tensor.Data; len(ids) < 8*count {
			return nil, nil, s.errorf(stream.InvalidArgument, "crop.ids", "tensor %s has %d ids for %d boxes", set.IDs,
				len(ids)/8, count)
		}
		cr.ids = make([]int64, count)
	}
	for i := range count {
		if ids != nil {
			cr.ids[i] = int64(binary.LittleEndian.Uint64(ids[8*i:]))
			if cr.rows[i] = n.keptOutputs(s, cr.ids[i]); cr.rows[i] != nil {
				continue
			}
		}
		box := boxes.Data[16*i:]
		parts = append(parts, boxCrop{i, n.region(set, float32At(box, 0), float32At(box, 1), float32At(box, 2),
			float32At(box, 3))})
	}
	cr.cropsLeft = len(parts)
	return parts, cr, nil
}

// keptOutputs returns the kept outputs of an id, unless too old. mu is held.
func (n *run) keptOutputs(s *step, id int64) *cropOutputs {
	if n.state == nil || id == 0 {
		return nil
	}
	c, ok := n.state.crops[s.index][id]
	if !ok {
		return nil
	}
	c.seen = n.state.frames
	n.state.crops[s.index][id] = c
	refresh := s.set.Crop.Refresh
	if refresh.Frames > 0 && n.state.frames-c.frame >= refresh.Frames ||
		refresh.After > 0 && n.begun.Sub(c.at) >= refresh.After {
		return nil
	}
	return &cropOutputs{c.outputs.tensors, retain(c.outputs.lease)}
}

// The bounds on outputs kept for the ids of a stream.
const (
	maxKept    = 256
	keptFrames = 100 // after so many frames without the id
)

// keep keeps the outputs of an id. mu is held.
func (n *run) keep(s *step, id int64, o *cropOutputs) {
	if n.state == nil || id == 0 {
		return
	}
	all := n.state.crops[s.index]
	if all == nil {
		all = map[int64]crop{}
		n.state.crops[s.index] = all
	}
	if old, ok := all[id]; ok {
		old.outputs.lease.Release()
	}
	all[id] = crop{&cropOutputs{o.tensors, retain(o.lease)}, n.state.frames, n.begun, n.state.frames}
}

// forget releases the outputs of ids unseen for long. mu is held.
func (n *run) forget(s *step) {
	if n.state == nil {
		return
	}
	all := n.state.crops[s.index]
	for age := keptFrames; ; age /= 2 {
		for id, c := range all {
			if n.state.frames-c.seen > age {
				c.outputs.lease.Release()
				delete(all, id)
			}
		}
		if len(all) <= maxKept || age == 0 {
			return
		}
	}
}

// region returns the part of the picture in a box, with the margin and inside the picture.
func (n *run) region(set *Crop, x1, y1, x2, y2 float32) stream.Region {
	mx, my := float64(x2-x1)*set.Margin, float64(y2-y1)*set.Margin
	from := func(v, margin float64, size int) int {
		return int(min(max(math.Floor(v-margin), 0), float64(max(size-1, 0))))
	}
	to := func(v, margin float64, size, first int) int {
		return int(max(min(math.Ceil(v+margin), float64(size)), float64(first+1)))
	}
	width, height := n.width, n.height
	if width == 0 {
		width, height = math.MaxUint16, math.MaxUint16
	}
	x, y := from(float64(x1), mx, width), from(float64(y1), my, height)
	return stream.Region{X: uint16(x), Y: uint16(y), Width: uint16(to(float64(x2), mx, width, x) - x),
		Height: uint16(to(float64(y2), my, height, y) - y)}
}

func float32At(data []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
}

// sendParts sends parts of the picture to the step's model: of the request's own frame, or of the decoded frame.
func (n *run) sendParts(s *step, parts []boxCrop, decoded *stream.Frame) {
	n.mu.Lock()
	f := n.header(s)
	n.mu.Unlock()
	if n.setPayload(&f); decoded != nil {
		f.Codec, f.Payload, f.Width, f.Height, f.SourceWidth, f.SourceHeight = decoded.Codec, decoded.Payload,
			decoded.Width, decoded.Height, 0, 0
	}
	lease := n.values[s.picture].lease
	if decoded != nil {
		lease = decoded.Lease
	}
	for _, p := range parts {
		f.Region, f.Lease = p.region, retain(lease)
		if err := n.submit(s, p.box, f, stream.Now()); err != nil {
			n.fail(s.at, err)
			return
		}
	}
}

// cropped takes the outputs of one box from the box's result.
func (n *run) cropped(s *step, box int, res *stream.Result) {
	outputs := res.Outputs
	o := &cropOutputs{make([]stream.Tensor, len(s.out)), res.Lease}
	res.Lease = nil
	res.Release()
	for i, out := range s.out {
		k := slices.IndexFunc(outputs, func(t stream.Tensor) bool { return t.Name == out.name })
		if k < 0 {
			o.lease.Release()
			n.fail(s.at, s.errorf(stream.Internal, "output."+out.name,
				"is not in the answer of model %s, which has %s", s.set.Model, tensorNames(outputs)))
			return
		}
		t := outputs[k]
		t.Shape = dimsOf(&t, out.spec)
		o.tensors[i] = t
	}
	n.mu.Lock()
	cr := n.crops[s.index]
	cr.rows[box] = o
	cr.cropsLeft--
	last := cr.cropsLeft == 0
	if cr.ids != nil {
		n.keep(s, cr.ids[box], o)
	}
	n.mu.Unlock()
	if last {
		n.join(s)
	}
}

// join makes the step's outputs, with one row for each box.
func (n *run) join(s *step) {
	n.mu.Lock()
	cr := n.crops[s.index]
	n.forget(s)
	n.mu.Unlock()
	values := make([]value, 0, len(s.out))
	var err error
	for i, out := range s.out {
		var v value
		if v, err = n.joinOutput(s, cr, i, out); err != nil {
			break
		}
		values = append(values, v)
	}
	cr.release()
	switch {
	case err == nil:
		n.complete(s, stream.Answered, values, stream.Now())
		return
	case errors.Is(err, buf.ErrBudget):
		n.drop(s, stream.Memory)
	default:
		n.fail(s.at, err)
	}
	for _, v := range values {
		v.lease.Release()
	}
}

// joinOutput makes one output, [1, boxes, ...], or [boxes, ...] in a graph without a batch axis. Rows with a free
// first dimension are padded with zeros to the longest row.
func (n *run) joinOutput(s *step, cr *cropRun, i int, out port) (v value, err error) {
	info := &n.w.plan.tensors[out.tensor]
	t := stream.Tensor{Name: info.name, Shape: []int{1, len(cr.rows)}}
	if n.w.plan.noAxis {
		t.Shape = t.Shape[1:]
	}
	if len(cr.rows) == 0 {
		if out.spec != nil {
			t.Datatype = out.spec.Datatype
			for _, d := range out.spec.Shape {
				t.Shape = append(t.Shape, max(d, 0))
			}
		} else {
			t.Datatype = stream.Float32
		}
		return value{t, nil, present}, nil
	}
	first := &cr.rows[0].tensors[i]
	t.Datatype = first.Datatype
	longest := first
	for _, row := range cr.rows {
		r := &row.tensors[i]
		same := r.Datatype == first.Datatype && len(r.Shape) == len(first.Shape) &&
			(len(r.Shape) == 0 || slices.Equal(r.Shape[1:], first.Shape[1:]))
		if !same {
			return v, s.errorf(stream.Internal, "output."+out.name,
				"has rows of %s %v and %s %v, which make no tensor", first.Datatype, first.Shape, r.Datatype, r.Shape)
		}
		if len(r.Shape) > 0 && r.Shape[0] > longest.Shape[0] {
			longest = r
		}
	}
	t.Shape = append(t.Shape, longest.Shape...)
	elements, size := stream.Elements(longest.Shape), 0
	missing := func(r *stream.Tensor) int { // bytes of the zeros
		each := t.Datatype.Size()
		if t.Datatype == stream.Bytes {
			each = 4 // an empty element
		}
		return (elements - stream.Elements(r.Shape)) * each
	}
	for _, row := range cr.rows {
		size += len(row.tensors[i].Data) + missing(&row.tensors[i])
	}
	if v.lease, err = n.w.env.Memory.Lease(size); err != nil {
		return v, err
	}
	t.Data = v.lease.Bytes()
	to := t.Data
	for _, row := range cr.rows {
		r := &row.tensors[i]
		to = to[copy(to, r.Data):]
		zeros := missing(r)
		clear(to[:zeros])
		to = to[zeros:]
	}
	v.tensor, v.state = t, present
	return v, nil
}

// cutter decodes pictures for crops of several boxes and for steps with pixels as input, in a separate goroutine, so
// that the worker that found the boxes can go on.
type cutter struct {
	pictures *workers.Pictures

	mu     sync.Mutex
	queue  []cutting // bounded by the runs with a place
	wake   chan struct{}
	closed bool
}

// cutting is a step of a run that needs the decoded picture: a crop, or without parts a step with pixels as input.
type cutting struct {
	run   *run
	step  *step
	parts []boxCrop
}

func (c *cutter) init(env *workers.Env) {
	c.pictures, c.wake = workers.NewPictures(env.Pixels, env.Memory), make(chan struct{}, 1)
}

func (c *cutter) add(x cutting) {
	c.mu.Lock()
	c.queue = append(c.queue, x)
	c.mu.Unlock()
	c.signal()
}

func (c *cutter) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *cutter) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.signal()
}

// loop cuts until the cutter is closed; no run is left then.
func (c *cutter) loop() {
	defer c.pictures.Close()
	for {
		c.mu.Lock()
		queue, closed := c.queue, c.closed
		c.queue = nil
		c.mu.Unlock()
		for _, x := range queue {
			c.cut(x)
		}
		if closed {
			return
		}
		<-c.wake
	}
}

func (c *cutter) cut(x cutting) {
	n := x.run
	defer n.endWait()
	defer n.recover()
	n.mu.Lock()
	failed := n.failed
	n.mu.Unlock()
	if failed {
		return
	}
	if err := c.decode(n); err != nil {
		c.failed(x, err)
		return
	}
	if x.parts != nil {
		n.sendParts(x.step, x.parts, n.picture)
		return
	}
	pixels := make([]value, len(x.step.in))
	for i, in := range x.step.in {
		if !in.pixels {
			continue
		}
		var err error
		if pixels[i], err = c.pixels(n, in); err != nil {
			for _, v := range pixels {
				v.lease.Release()
			}
			c.failed(x, err)
			return
		}
	}
	n.send(x.step, pixels, stream.Now())
}

// decode decodes the picture of a run, unless the picture is raw or already decoded for an earlier step.
func (c *cutter) decode(n *run) error {
	if n.picture != nil || !compressed(n.r.Codec) {
		return nil
	}
	begun := stream.Now()
	f, err := c.pictures.RGB(n.r.Payload)
	ended := stream.Now()
	n.r.Account.Decoded(ended.Sub(begun), ended)
	if err == nil {
		n.picture = &f
	}
	return err
}

func (c *cutter) failed(x cutting, err error) {
	if errors.Is(err, buf.ErrBudget) {
		x.run.drop(x.step, stream.Memory)
		return
	}
	x.run.fail(x.step.at, err)
}

// pixelForm returns the size, 0 = the picture's own, and the channels of an input for pixels.
func pixelForm(spec *stream.TensorSpec) (width, height int, color string) {
	color = cmp.Or(spec.Color, "RGB")
	if spec.Shape[2] == 1 {
		color = "GRAY"
	}
	return max(spec.Shape[1], 0), max(spec.Shape[0], 0), color
}

// pixels returns the picture of a run in the form for an input. With the same size and color, pixels returns the
// decoded picture itself.
func (c *cutter) pixels(n *run, in port) (v value, err error) {
	f := n.picture
	if f == nil {
		f = &n.r.Frame
	}
	width, height, color := pixelForm(in.spec)
	v.state = present
	own := f.SourceWidth == 0 || f.SourceWidth == f.Width && f.SourceHeight == f.Height
	if f.Codec == stream.RGB24 && color == "RGB" && own && (width == 0 || width == f.Width) &&
		(height == 0 || height == f.Height) {
		v.tensor = stream.Tensor{Datatype: stream.Uint8, Shape: []int{f.Height, f.Width, 3}, Data: f.Payload}
		v.lease = retain(f.Lease)
	} else if v.tensor, v.lease, err = c.pictures.Pixels(f, color, width, height); err != nil {
		return v, err
	}
	if !in.noAxis {
		v.tensor.Shape = append([]int{1}, v.tensor.Shape...)
	}
	return v, nil
}
