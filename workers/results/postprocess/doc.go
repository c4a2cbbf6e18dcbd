// Package postprocess makes named results from the raw output tensors of a model: classes, boxes, masks, key points,
// embeddings, in pixels of the frame as sent. Each kind of result has its own file.
//
// The package owns the arithmetic and the memory of the results. The package must not know the program that ran the
// model, the source of frames, or the receiver of results.
package postprocess
