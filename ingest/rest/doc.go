// Package rest is the REST adapter: the Open Inference Protocol (KServe v2) with the binary tensor extension,
// pictures as request bodies, the model repository, and the health routes, on the shared HTTP listener.
//
// Package rest translates between HTTP and frames, results and coded errors. internal/oip encodes and decodes
// messages, and internal/httpd applies the rules for every request. Package rest must not know worker groups, queues
// or batches.
package rest
