//go:build !amd64

package oip

func runUint8(src []byte, pos int, dst []byte) (next, n int) { return blockUint8(src, pos, dst) }
