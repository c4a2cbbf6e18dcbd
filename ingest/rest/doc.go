// Package rest is the REST adapter: the Open Inference Protocol (KServe v2) with
// the binary tensor extension, pictures as request bodies, the model repository,
// and the health routes, on the shared HTTP listener.
//
// It translates between HTTP and frames, results and coded errors; internal/oip
// codes the messages and internal/httpd holds the rules for every request. It
// must not know worker groups, queues or batches.
package rest
