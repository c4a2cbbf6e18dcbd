package postprocess

import "math"

// cell is the grid cell of a box of a YOLOX model.
type cell struct{ x, y, stride float32 }

// yoloxCells returns the cells of grids of 8, 16 and 32 pixels over the model's input, row by row, in the order of
// YOLOX's boxes.
func yoloxCells(f *finder) ([]cell, error) {
	w, h, err := f.size()
	if err != nil {
		return nil, err
	}
	var cells []cell
	for _, stride := range []int{8, 16, 32} {
		for y := range (h + stride - 1) / stride {
			for x := range (w + stride - 1) / stride {
				cells = append(cells, cell{float32(x), float32(y), float32(stride)})
			}
		}
	}
	return cells, nil
}

// box returns a box in pixels: cx and cy are offsets from the cell's corner in cells, w and h are natural logarithms
// of sizes in cells (YOLOX, Ge et al. 2021, section 2.2: the decoded head of YOLOX without anchors).
func (c cell) box(cx, cy, w, h float32) (float32, float32, float32, float32) {
	size := func(v float32) float32 { return float32(math.Exp(float64(v))) * c.stride }
	return (cx + c.x) * c.stride, (cy + c.y) * c.stride, size(w), size(h)
}
