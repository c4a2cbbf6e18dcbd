// Package tasks is the adapter for tasks: inferences whose answers are kept until they are fetched. It owns the
// routes below /v2/tasks and the consumer that runs the tasks of the server's own models. It must not know how tasks
// are stored.
package tasks
