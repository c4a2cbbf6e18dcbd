// Package postprocess turns the raw output tensors of a model into named
// results: classes, boxes, masks, key points, embeddings, in pixels of the frame
// as sent. One file per kind of result.
//
// It owns the arithmetic and the memory of the results. It must not know what
// ran the model, how frames come, or where results go.
package postprocess
