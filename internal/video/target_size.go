package video

// TargetSize is the picture size wanted by one consumer of a source. The zero TargetSize is the source's own size.
type TargetSize struct {
	Width, Height int  // pixels; both 0: the source's own size
	Letterbox     bool // keep the aspect ratio within Width x Height; else stretch to Width x Height
}

// In returns the size to which a source of w by h pixels can be scaled so that the consumer need not scale again. The
// size is never larger than the source.
func (n TargetSize) In(w, h int) (width, height int) {
	tw, th := n.Width, n.Height
	if tw <= 0 || th <= 0 {
		return w, h
	}
	if n.Letterbox {
		// Same placement as in package codec.
		if tw*h <= th*w {
			th = max((2*h*tw+w)/(2*w), 1)
		} else {
			tw = max((2*w*th+h)/(2*h), 1)
		}
	}
	return min(tw, w), min(th, h)
}

// Largest returns the size that serves all needs: the largest of each side. Without needs, the source's own size.
func Largest(w, h int, needs []TargetSize) (width, height int) {
	if len(needs) == 0 {
		return w, h
	}
	for _, n := range needs {
		nw, nh := n.In(w, h)
		width, height = max(width, nw), max(height, nh)
	}
	return width, height
}
