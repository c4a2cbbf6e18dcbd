// Package ingest defines the interface of protocol adapters, and the Backend called by every adapter. Each adapter
// has its own folder, and no adapter knows another.
//
// Adapters translate bytes of their protocol to frames, and results and coded errors to bytes. Adapters must not know
// worker groups, queues or batches.
package ingest
