// Package tasks keeps inferences whose answers may wait: each task is durable from its acknowledgement to its
// deletion, runs on any consumer, and has exactly one result.
//
// The record of a task is one key of a JetStream key-value bucket, and its bytes are blobs (package blob). Every
// change of a record names the revision that the change replaces, so that of two consumers, or of a consumer and a
// client who cancels, exactly one wins: JetStream refuses the other change. There is no second queue beside the
// records: a Store follows all changes of the bucket, keeps an index in memory, and offers queued tasks in order to
// the consumers of its process. After a crash, the index is read again from the bucket.
//
// A consumer that has claimed a task renews its claim. A Store that sees no renewal for the time of a lease, measured
// on its own monotonic clock, queues the task again; the late consumer's result is refused by its revision.
//
// The package must not know protocols, models or containers.
package tasks
