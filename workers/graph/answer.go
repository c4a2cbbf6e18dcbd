package graph

import (
	"slices"
	"strings"

	"millrace/stream"
	"millrace/stream/buf"
)

// answer ends the request with the graph's outputs.
func (n *run) answer() {
	r := n.r
	outputs, lease := n.outputs()
	r.SentWidth, r.SentHeight = n.width, n.height
	if r.Call != nil {
		r.SetReply(n.reply)
	}
	r.FinishParams(outputs, lease, n.params())
}

// outputs returns the graph's outputs, and their memory with a reference for the caller.
func (n *run) outputs() ([]stream.Tensor, *buf.Buf) {
	outputs := make([]stream.Tensor, 0, len(n.w.plan.outputs))
	leases := make([]*buf.Buf, 0, 4)
	for i, k := range n.w.plan.outputs {
		v := &n.values[k]
		if v.state != present {
			continue
		}
		t := v.tensor
		if n.w.plan.rows[i] && len(t.Shape) > 0 && t.Shape[0] == 1 {
			t.Shape = t.Shape[1:]
		}
		outputs = append(outputs, t)
		if v.lease != nil && !slices.Contains(leases, v.lease) {
			leases = append(leases, v.lease)
		}
	}
	for _, l := range leases {
		l.Retain()
	}
	return outputs, buf.Join(leases...)
}

// params lists the omitted parts in the result.
func (n *run) params() (p stream.Params) {
	set := func(key string, v any) {
		if p == nil {
			p = stream.Params{}
		}
		p[key] = v
	}
	var skipped []string
	for i := range n.steps {
		st := &n.steps[i]
		if st.Outcome == stream.Pending { // no remaining step could still run
			skipped = append(skipped, st.Name)
		}
		if n.crops != nil && n.crops[i] != nil && n.crops[i].cut > 0 {
			set(st.Name+".boxes_cut", int64(n.crops[i].cut))
		}
	}
	if len(skipped) > 0 {
		set("steps_skipped", strings.Join(skipped, ","))
	}
	return p
}
