// Package postprocess makes named results from the raw output tensors of a model:
// classes, boxes, masks, key points, embeddings, in pixels of the frame as sent. Each
// kind of result has its own file.
//
// The package owns the arithmetic and the memory of the results. It must not know what
// ran the model, where frames come from, or where results go.
package postprocess
