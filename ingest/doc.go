// Package ingest defines what a protocol adapter is, and the Backend that every adapter
// calls. Each adapter has its own folder, and none knows another.
//
// Adapters translate: bytes of their protocol to frames, and results and coded errors
// to bytes. They must not know worker groups, queues or batches.
package ingest
