// Package shm manages the shared memory of clients on the same machine: the regions registered by clients, to be
// named in requests in place of the data of tensors. The package must not know messages or protocols; package
// inference reads and writes the tensors.
package shm
