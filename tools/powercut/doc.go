// Package powercut is a file system in memory for tests of power failures and of full disks. The file system keeps
// changes that were not synced apart from the state on the disk, and computes what a disk may hold after a power
// failure. A FUSE mount gives the file system to a process. The package must not know which program uses the files.
//
// The model is stricter than common file systems: fsync of a file makes the bytes of the file durable, and only fsync
// of a folder makes the names in the folder durable. A rename is atomic.
package powercut
