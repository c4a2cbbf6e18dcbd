// Package shm has the shared memory of clients on the same machine: the regions that they
// registered, which requests name instead of sending the data of tensors. It must not know
// messages or protocols; package inference reads and writes the tensors.
package shm
