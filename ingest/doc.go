// Package ingest defines what a protocol adapter is, and the Backend that
// every adapter calls: one folder per adapter, none of which knows another.
//
// Adapters translate: bytes of their protocol to frames, results and coded
// errors back to bytes. They must not know worker groups, queues or batches.
package ingest
