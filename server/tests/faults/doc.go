// Package faults tests that each frame has exactly one outcome, whatever fails: workers, sources, clients or the server
// process. TestSoak runs the faults at random for as long as its flag says.
package faults
