// Package container is the worker kind that runs a container image for each task: the image gets the files of the task
// in /input, and the files that the image writes to /output are the result. With container.serve, the image is a server
// of the Open Inference Protocol, in one container for each instance; package remote sends the requests.
//
// The package owns the connection to the container engine (Docker Engine API), the working folders below the data
// folder, the limits, networks and removal of containers. The package must not know tasks or protocols.
package container
