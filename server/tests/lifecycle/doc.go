// Package lifecycle tests how a server starts, listens, encrypts its listeners, drains and ends.
package lifecycle
