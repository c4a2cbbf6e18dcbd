// Package container is the worker kind that runs a container image for each task: the image gets the files of the task
// in /input, and the files that the image writes to /output are the result.
//
// The package owns the connection to the container engine (Docker Engine API), the working folders below the data
// folder, the limits of containers, and their removal. The package must not know tasks or protocols.
package container
