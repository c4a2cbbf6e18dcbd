package workers

import (
	"time"

	"millrace/batching"
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/workers/results"
)

// costOf estimates how long decoding the pictures of a request takes (stream.Model.Cost).
func (g *Group) costOf(r *stream.Request) (cost time.Duration) {
	if r.Assembled == nil {
		return g.costOfFrame(&r.Frame)
	}
	for i := range r.Assembled.Frames {
		cost += g.costOfFrame(&r.Assembled.Frames[i])
	}
	return cost
}

func (g *Group) costOfFrame(f *stream.Frame) time.Duration {
	switch f.Codec {
	case stream.Tensors:
		return 0
	case stream.RGB24, stream.NV12:
		return codec.CostOfPixels(f.Width, f.Height)
	}
	info, err := g.pixels.Header(f.Payload)
	if err != nil {
		return 0 // the worker will get the same error as fast
	}
	return info.Cost(len(f.Payload))
}

// startHeavyDecoders starts goroutines that decode heavy frames, if heavy frames wait. The caller holds gather.
func (g *Group) startHeavyDecoders() {
	for g.heavyDecoders < cap(g.decoders) && g.intake.HeavyWaiting() > g.heavyDecoders-g.intake.HeavyTaken() {
		select {
		case <-g.stopping:
			return
		default:
		}
		g.heavyDecoders++
		g.heavyWait.Add(1)
		g.wg.Go(g.decodeHeavyFrames)
	}
}

// decodeHeavyFrames decodes heavy frames until none waits. The goroutines of all groups together decode
// no more at once than decoders has places.
func (g *Group) decodeHeavyFrames() {
	defer g.heavyWait.Done()
	prep, stages, err := g.newPreparerAndStages()
	defer prep.close()
	for err == nil {
		select {
		case g.decoders <- struct{}{}:
		case <-g.stopping:
			g.gather.Lock()
			g.heavyDecoders--
			g.gather.Unlock()
			return
		}
		g.gather.Lock()
		h, ok := g.intake.TakeHeavy(stream.Now())
		if !ok {
			g.heavyDecoders--
		}
		g.gather.Unlock()
		if !ok {
			<-g.decoders
			return
		}
		begun := stream.Now()
		g.decodeHeavy(h.Request, prep, stages)
		took := stream.Now().Sub(begun)
		<-g.decoders
		g.gather.Lock()
		g.intake.AddDecoded(h, took)
		g.gather.Unlock()
		g.recheck()
		g.failWithoutWorkers()
	}
	g.gather.Lock()
	g.heavyDecoders--
	g.gather.Unlock()
}

// decodeHeavy prepares a heavy request before its batch is formed.
func (g *Group) decodeHeavy(r *stream.Request, prep *preparer, stages *results.Chain) {
	defer g.turns.Occupy()()
	if r.Outcome() != stream.Pending || stages != nil && stages.Before(r) {
		r.Unbind()
		return
	}
	in := &g.model.Inputs[0]
	row, err := g.mem.Lease(stream.Elements(in.Shape) * in.Datatype.Size())
	if err != nil {
		r.Drop(stream.Memory)
		r.Unbind()
		return
	}
	batching.DecodePictures(r, row, prep.decode)
}

// failWithoutWorkers ends the ready requests when no worker is left.
func (g *Group) failWithoutWorkers() {
	g.registry.Lock()
	none := len(g.all) == 0
	g.registry.Unlock()
	if none {
		g.failPartial(stream.Errorf(stream.Unavailable, "", "model %s has no worker left", g.cfg.Name))
	}
}

// newPreparerAndStages makes a decoder of pictures, and the stages.
func (c *common) newPreparerAndStages() (*preparer, *results.Chain, error) {
	p, err := newPreparer(c.model, c.pixels, c.decoding)
	if err != nil {
		return p, nil, err
	}
	stages, _, err := results.New(c.cfg.Parts, c.computed,
		results.Tools{Picture: p.picture, Skipped: func(q *stream.Request) {
			q.Gated = true
			if c.hooks.Skipped != nil {
				c.hooks.Skipped(q)
			}
		}})
	return p, stages, err
}
