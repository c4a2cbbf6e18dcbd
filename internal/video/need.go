package video

// Need is the size of the picture that one consumer of a source makes of each frame. The zero Need is the source's own
// size.
type Need struct {
	Width, Height int  // pixels; 0, both of them, is the source's own size
	Letterbox     bool // the picture keeps its aspect ratio within Width x Height; otherwise it is stretched to them
}

// In returns the size to which a source of w by h pixels can be scaled for the consumer, so that it need not be scaled
// further. It is never larger than the source.
func (n Need) In(w, h int) (width, height int) {
	tw, th := n.Width, n.Height
	if tw <= 0 || th <= 0 {
		return w, h
	}
	if n.Letterbox {
		// As package codec places it.
		if tw*h <= th*w {
			th = max((2*h*tw+w)/(2*w), 1)
		} else {
			tw = max((2*w*th+h)/(2*h), 1)
		}
	}
	return min(tw, w), min(th, h)
}

// Largest returns the size that serves all needs: the largest of each side. Without needs it is the source's own.
func Largest(w, h int, needs []Need) (width, height int) {
	if len(needs) == 0 {
		return w, h
	}
	for _, n := range needs {
		nw, nh := n.In(w, h)
		width, height = max(width, nw), max(height, nh)
	}
	return width, height
}
